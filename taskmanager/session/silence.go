package session

import (
	"fmt"
	"strings"
	"time"
)

// sayAgain is the pause between two messages about the same silence.
const sayAgain = 30 * time.Second

// silence collects what the JobManagers answered while none of them led. The zero value is the beginning of one.
type silence struct {
	addresses []string
	answers   map[string]error
	said      time.Time
}

func (s *silence) add(address string, err error) {
	if s.answers == nil {
		s.answers = make(map[string]error)
	}
	if _, known := s.answers[address]; !known {
		s.addresses = append(s.addresses, address)
	}
	s.answers[address] = err
}

// worthSaying reports whether the silence should be told of at now, and takes note that it was.
func (s *silence) worthSaying(now time.Time) bool {
	if len(s.answers) == 0 || !s.said.IsZero() && now.Sub(s.said) < sayAgain {
		return false
	}
	s.said = now
	return true
}

// String lists the last answer of each address.
func (s *silence) String() string {
	parts := make([]string, 0, len(s.addresses))
	for _, a := range s.addresses {
		parts = append(parts, fmt.Sprintf("%s: %v", a, s.answers[a]))
	}
	return strings.Join(parts, "; ")
}
