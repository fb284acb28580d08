package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a size in bytes, written with an optional unit: 1073741824, 1GiB, 500MB, 64KiB.
type Bytes int64

// units from the largest; the suffixes of powers of ten and of two are both understood.
var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"KB", 1e3},
	{"B", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units {
		if len(s) > len(u.name) && strings.EqualFold(s[len(s)-len(u.name):], u.name) {
			s, unit = strings.TrimSpace(s[:len(s)-len(u.name)]), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return fmt.Errorf("%q is not a size such as 1073741824, 1GiB or 500MB", text)
	}
	*b = Bytes(n * unit)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range units {
		if b >= Bytes(u.size) && int64(b)%u.size == 0 && u.size > 1 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
