// Package sysmem tells how much memory a process may use.
package sysmem

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// fallback is what is assumed where the system does not tell.
const fallback = 4 << 30

// Total returns the bytes of memory of the machine or, where that is less, of the container.
func Total() int64 {
	info, _ := os.ReadFile("/proc/meminfo")
	limit, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	return total(info, limit)
}

func total(meminfo, limit []byte) int64 {
	n := int64(fallback)
	for lines := bufio.NewScanner(bytes.NewReader(meminfo)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "MemTotal:" {
			continue
		}
		if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil && kib > 0 {
			n = kib << 10
		}
	}
	if bound, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil && bound > 0 {
		n = min(n, bound)
	}
	return n
}
