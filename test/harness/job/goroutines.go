package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// noteGoroutines tells a test what the process has, for as long as it lives. A reader may find an empty file for a moment.
func noteGoroutines(dir string) {
	for {
		_ = os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), []byte(strconv.Itoa(runtime.NumGoroutine())), 0o600)
		time.Sleep(100 * time.Millisecond)
	}
}
