package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// profileEach is how long one profile is. A worker is killed at the end of a run, so that only whole ones are of use.
const profileEach = 2 * time.Second

// profileWorker writes one CPU profile after the other, and after each what is alive, to the directory that the arguments name, if they do and this is a worker.
func profileWorker(args []string) {
	dir := ""
	for _, arg := range args {
		if d, ok := strings.CutPrefix(arg, "--profile="); ok {
			dir = d
		}
	}
	if dir == "" || os.Getenv("WEIR_MODE") != "worker" {
		return
	}
	go func() {
		for n := 0; ; n++ {
			err := profile(filepath.Join(dir, fmt.Sprintf("weir-%d-%03d.pprof", os.Getpid(), n)))
			if err == nil {
				err = profileHeap(filepath.Join(dir, fmt.Sprintf("heap-%d-%03d.pprof", os.Getpid(), n)))
			}
			if err != nil {
				log.Print(err)
				return
			}
		}
	}()
}

func profile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	time.Sleep(profileEach)
	pprof.StopCPUProfile()
	return f.Close()
}

func profileHeap(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.WriteHeapProfile(f); err != nil {
		return err
	}
	return f.Close()
}
