package taskmanager

import (
	"encoding"
	"fmt"
	"strconv"
	"strings"
)

// PortRange is a range of TCP ports, both ends included. The zero value stands for any port. Its text form is FIRST-LAST.
type PortRange struct{ First, Last uint16 }

var (
	_ encoding.TextMarshaler   = PortRange{}
	_ encoding.TextUnmarshaler = (*PortRange)(nil)
)

// MarshalText implements encoding.TextMarshaler.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A single port is a range too.
func (r *PortRange) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = PortRange{}
		return nil
	}
	first, last, ok := strings.Cut(string(text), "-")
	if !ok {
		last = first
	}
	a, err1 := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if err1 != nil || err2 != nil || a == 0 || b < a {
		return fmt.Errorf("%q is not a range of ports such as 7100-7199", text)
	}
	*r = PortRange{First: uint16(a), Last: uint16(b)}
	return nil
}

// String returns FIRST-LAST, or nothing for any port.
func (r PortRange) String() string {
	if r == (PortRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}
