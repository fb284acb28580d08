// Package usage reads what processes have used of the machine.
package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, as on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns the user and system time that processes have used, in all of their threads.
func CPU(pids ...int) (time.Duration, error) {
	var total int64
	for _, pid := range pids {
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
		for _, f := range []string{fields[user], fields[system]} {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, err
			}
			total += n
		}
	}
	return time.Duration(total) * tick, nil
}

// Peak returns the sum of the most memory in bytes that each of the processes has had resident.
func Peak(pids ...int) (int64, error) {
	var total int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, ok := strings.Cut(string(text), "VmHWM:")
		var kib int64
		if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil || !ok {
			return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
		}
		total += kib << 10
	}
	return total, nil
}
