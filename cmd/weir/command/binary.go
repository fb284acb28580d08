package command

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// binary is a job binary on disk.
type binary struct {
	*os.File
	hash string
	size int64
	arch string // GOARCH; empty when unknown
}

// machines maps ELF machines to GOARCH.
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x", elf.EM_PPC64: "ppc64le", elf.EM_LOONGARCH: "loong64",
}

// openBinary opens and hashes a job binary and refuses what no TaskManager could run.
func openBinary(path string) (*binary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &binary{File: f}
	if err := b.inspect(path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return b, nil
}

func (b *binary) inspect(path string) error {
	info, err := b.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory: build the job first, with GOOS=linux go build -o job %s, and submit the result", path, path)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(b, head); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	switch {
	case string(head) == elf.ELFMAG:
		e, err := elf.NewFile(b)
		if err != nil {
			return fmt.Errorf("%s is a damaged executable: %w", path, err)
		}
		if e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
			return fmt.Errorf("%s is an ELF file but not an executable", path)
		}
		b.arch = machines[e.Machine]
	case machO(head) && runtime.GOOS == "darwin":
		// A cluster on the same Mac runs it; another one says why it does not.
	case machO(head):
		return fmt.Errorf("%s is built for macOS: build it with GOOS=linux", path)
	case string(head[:2]) == "MZ":
		return fmt.Errorf("%s is built for Windows: build it with GOOS=linux", path)
	default:
		return fmt.Errorf("%s is not an executable: submit the binary that 'go build' made of the job", path)
	}
	if _, err := b.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	h := sha256.New()
	if b.size, err = io.Copy(h, b); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	b.hash = hex.EncodeToString(h.Sum(nil))
	return nil
}

func machO(head []byte) bool {
	switch string(head) {
	case "\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xfe\xed\xfa\xcf", "\xfe\xed\xfa\xce", "\xca\xfe\xba\xbe":
		return true
	default:
		return false
	}
}
