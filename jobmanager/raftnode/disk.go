package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// roomNeeded is the space in bytes that must be free before a member whose disk was full writes again.
	roomNeeded = 256 << 10
	// roomEvery is the pause between two looks for space.
	roomEvery = 250 * time.Millisecond
	// roomFile is the file by which space is looked for.
	roomFile = ".room"
)

// markKey is written by a leader that has nothing else to write. The library does not use it.
var markKey = []byte("weir-mark")

// disk is the library's log and stable store. Every write is watched, and a disk without space is waited for: the library itself
// panics when it cannot store its term, and a follower whose log write fails between two steps never recovers.
//
//   - A leader's log write fails at once, and the library gives up the leadership.
//   - Every other write waits until there is space. The member is silent meanwhile: it has promised nothing.
//   - Any other failure of a write ends the process, see [Node.Fatal].
type disk struct {
	raft.LogStore
	stable raft.StableStore
	dir    string
	watch  *watch
	logger *slog.Logger

	leads   func() bool
	silence func() // off the network, for as long as the term or a vote waits to be stored
	speak   func()
	trouble func(string) // empty: over
	giveUp  func(error)
	closing <-chan struct{} // closed by Shutdown

	mu      sync.Mutex
	full    bool
	waiting int // writes of the stable store
	last    atomic.Int64
	start   time.Time
}

var (
	_ raft.LogStore    = (*disk)(nil)
	_ raft.StableStore = (*disk)(nil)
)

// StoreLog implements raft.LogStore.
func (d *disk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (d *disk) StoreLogs(ls []*raft.Log) error {
	for {
		if d.isFull() {
			if d.leads() && d.room() != nil {
				return fmt.Errorf("%s: %w", d.dir, syscall.ENOSPC)
			}
			if !d.waitForRoom() {
				return raft.ErrRaftShutdown
			}
		}
		err := d.write("a write to the log", func() error { return d.LogStore.StoreLogs(ls) })
		if err == nil || !d.noSpace(err) || d.leads() {
			return err
		}
	}
}

// DeleteRange implements raft.LogStore. The library tries it again when it fails.
func (d *disk) DeleteRange(first, last uint64) error {
	err := d.write("a deletion from the log", func() error { return d.LogStore.DeleteRange(first, last) })
	if err != nil {
		d.noSpace(err)
	}
	return err
}

// Set implements raft.StableStore.
func (d *disk) Set(key, value []byte) error {
	return d.store(func() error { return d.stable.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (d *disk) SetUint64(key []byte, value uint64) error {
	return d.store(func() error { return d.stable.SetUint64(key, value) })
}

// Get implements raft.StableStore.
func (d *disk) Get(key []byte) ([]byte, error) { return d.stable.Get(key) }

// GetUint64 implements raft.StableStore.
func (d *disk) GetUint64(key []byte) (uint64, error) { return d.stable.GetUint64(key) }

// store writes a term or a vote. It returns nil or not at all: an error would make the library panic. When the member is shut down
// meanwhile, the goroutine ends here, which is what the library is about to make it do.
func (d *disk) store(write func() error) error {
	for {
		if d.isFull() {
			d.silent(true)
			room := d.waitForRoom()
			d.silent(false)
			if !room {
				runtime.Goexit()
			}
		}
		err := d.write("a write of the term or a vote", write)
		if err == nil {
			return nil
		}
		if !d.noSpace(err) {
			<-d.closing
			runtime.Goexit()
		}
	}
}

func (d *disk) silent(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on {
		if d.waiting++; d.waiting == 1 {
			d.silence()
		}
	} else if d.waiting--; d.waiting == 0 {
		d.speak()
	}
}

// mark writes something without meaning.
func (d *disk) mark() error {
	if d.isFull() {
		return nil
	}
	err := d.write("a write to the log", func() error { return d.stable.SetUint64(markKey, uint64(time.Since(d.start))) })
	if err != nil {
		d.noSpace(err)
	}
	return err
}

func (d *disk) write(what string, write func() error) error {
	end := d.watch.begin(what, 1)
	defer end()
	err := write()
	d.last.Store(int64(time.Since(d.start)))
	return err
}

// idleFor returns the time since the last write.
func (d *disk) idleFor() time.Duration {
	return time.Since(d.start) - time.Duration(d.last.Load())
}

// noSpace tells whether a write failed for want of space, and makes the others wait for it. Whatever else failed is final: what is on
// the disk is not known any more.
func (d *disk) noSpace(err error) bool {
	if !isNoSpace(err) && !isNoSpace(d.room()) { // the database does not always wrap what the system said
		d.giveUp(fmt.Errorf("%w: %s: %w", ErrDisk, d.dir, err))
		return false
	}
	d.mu.Lock()
	was := d.full
	d.full = true
	d.mu.Unlock()
	if !was {
		d.trouble("no space left in " + d.dir)
		d.logger.Error("no space left for the raft log: this member takes part again when there is some", "dir", d.dir, "error", err)
	}
	return true
}

func (d *disk) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// waitForRoom returns true when there is space again and false when the member is shut down.
func (d *disk) waitForRoom() bool {
	for {
		err := d.room()
		if err != nil && !isNoSpace(err) {
			d.giveUp(fmt.Errorf("%w: %s: %w", ErrDisk, d.dir, err))
		}
		if err == nil {
			d.roomAgain()
			return true
		}
		select {
		case <-d.closing:
			return false
		case <-time.After(roomEvery):
		}
	}
}

// look notices that there is space again where nobody has had anything to write since.
func (d *disk) look() {
	if d.isFull() && d.room() == nil {
		d.roomAgain()
	}
}

func (d *disk) roomAgain() {
	d.mu.Lock()
	was := d.full
	d.full = false
	d.mu.Unlock()
	if was {
		d.trouble("")
		d.logger.Info("there is space for the raft log again", "dir", d.dir)
	}
}

// room writes a file of roomNeeded bytes and removes it.
func (d *disk) room() error {
	f, err := os.CreateTemp(d.dir, roomFile)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, roomNeeded))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// removeLeftovers deletes what a process left behind that died while it looked for space or wrote a snapshot.
func removeLeftovers(dir string) error {
	var errs []error
	for _, pattern := range []string{roomFile + "*", filepath.Join("snapshots", "*.tmp")} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		errs = append(errs, err)
		for _, p := range paths {
			errs = append(errs, os.RemoveAll(p))
		}
	}
	return errors.Join(errs...)
}
