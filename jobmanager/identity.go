package jobmanager

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-stream/weir/internal/atomicfile"
)

// identityFile holds, in the data directory, the id of the JobManager that it belongs to.
const identityFile = "id"

// checkIdentity refuses a data directory that belongs to another JobManager: under a new id the old one's votes would be lost.
func checkIdentity(dir, id string) error {
	owner, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	if owner := string(bytes.TrimSpace(owner)); owner != id {
		return fmt.Errorf("data_dir: %s belongs to JobManager %q and this one's id is %q: keep the id, or use an empty directory", dir, owner, id)
	}
	return nil
}

// keepIdentity records the id in a new data directory.
func keepIdentity(dir, id string) error {
	path := filepath.Join(dir, identityFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := atomicfile.Write(path, []byte(id+"\n"), 0o644); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	return nil
}
