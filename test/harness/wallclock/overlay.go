package wallclock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Env names the environment variable with the path of a [Clock]'s file. A process without it has the machine's clock.
const Env = "WEIR_TEST_WALLCLOCK"

// original is what Now begins with in the Go distributions known; shifted takes its place.
const (
	original = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	shifted  = original + "\tsec, nsec = shiftedWall(sec, nsec)\n"
)

// addition is one more file of package time.
const addition = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var wallOffset = mapWallOffset()

func mapWallOffset() *int64 {
	path, ok := syscall.Getenv("` + Env + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("open the clock's offset: " + err.Error())
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map the clock's offset: " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*int64)(unsafe.Pointer(&b[0]))
}

func shiftedWall(sec int64, nsec int32) (int64, int32) {
	nanos := int64(nsec) + atomic.LoadInt64(wallOffset)
	sec += nanos / 1e9
	if nanos %= 1e9; nanos < 0 {
		sec, nanos = sec-1, nanos+1e9
	}
	return sec, int32(nanos)
}
`

// Overlay writes to dir what `go build -overlay` needs and returns the path of its description. It fails where the Go distribution's
// package time is not as expected.
func Overlay(dir string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find GOROOT: %w", err)
	}
	pkg := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(pkg, "time.go"))
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(original)); n != 1 {
		return "", fmt.Errorf("%s/time.go holds the beginning of Now %d times: this version of Go needs another overlay", pkg, n)
	}
	changed := bytes.Replace(source, []byte(original), []byte(shifted), 1)
	replace := map[string]string{}
	for name, text := range map[string][]byte{"time.go": changed, "wall_offset.go": []byte(addition)} {
		path := filepath.Join(dir, name+".txt")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(pkg, name)] = path
	}
	description, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, description, 0o644)
}
