package taskmanager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/oklog/ulid/v2"

	"github.com/weir-stream/weir/internal/atomicfile"
	"github.com/weir-stream/weir/taskmanager/session"
)

// ErrInUse is returned when another TaskManager process has the data directory open.
var ErrInUse = errors.New("data directory is in use by another TaskManager")

// dataDir is the locked data directory with what it says of its owner.
type dataDir struct {
	path    string
	lock    *os.File
	id      string // stable id of the TaskManager
	cluster string // cluster it belongs to; empty before the first registration
}

// openDataDir creates or opens the directory, locks it, and gives a new one an id.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	d := &dataDir{path: path, lock: lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w: stop it, or give this one a directory of its own with --data-dir", path, ErrInUse)
		}
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	if d.id, err = d.read("id"); err == nil && d.id == "" {
		d.id = "tm-" + strings.ToLower(ulid.Make().String())
		err = d.write("id", d.id)
	}
	if err == nil {
		d.cluster, err = d.read("cluster")
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("reading the data directory: %w", err)
	}
	return d, nil
}

// join binds a new directory to the cluster, for good.
func (d *dataDir) join(cluster string) error {
	switch {
	case cluster == d.cluster:
		return nil
	case d.cluster != "":
		return fmt.Errorf("%w: theirs is %s, the data in %s is of %s: check the JobManagers' addresses, or use an empty data directory to join their cluster",
			session.ErrOtherCluster, cluster, d.path, d.cluster)
	}
	if err := d.write("cluster", cluster); err != nil {
		return fmt.Errorf("noting the cluster in the data directory: %w", err)
	}
	d.cluster = cluster
	return nil
}

func (d *dataDir) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(d.path, name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

func (d *dataDir) write(name, value string) error {
	return atomicfile.Write(filepath.Join(d.path, name), []byte(value+"\n"), 0o600)
}

// close gives up the lock.
func (d *dataDir) close() { _ = d.lock.Close() }
