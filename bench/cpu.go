package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, as on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// processCPU returns the user and system time that a process has used, in all of its threads.
func processCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const user, system = 11, 12 // counted from the state
	if !ok || len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat is malformed", pid)
	}
	var total int64
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return time.Duration(total) * tick, nil
}

// cpu returns the sum over processes.
func cpu(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		d, err := processCPU(pid)
		if err != nil {
			return 0, err
		}
		total += d
	}
	return total, nil
}
