package session

import (
	"strings"
	"time"

	"google.golang.org/grpc/status"
)

// sayAgain is the pause between two warnings about the same silence.
const sayAgain = 30 * time.Second

// silence collects what the JobManagers answered while none of them led. The zero value is the beginning of one.
type silence struct {
	addresses []string
	answers   map[string]error
	began     time.Time // when the first round had found nobody
	said      time.Time // the last warning
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

// saying is what a silence is worth.
type saying int

const (
	nothing saying = iota
	aLine
	aWarning
)

// round tells what the end of a round at now is worth, and takes note that it was said. A search is usual for some time: at the start of a
// cluster, and during an election.
func (s *silence) round(now time.Time, usual time.Duration) saying {
	switch {
	case len(s.answers) == 0:
		return nothing
	case s.began.IsZero():
		s.began = now
		return aLine
	case now.Sub(s.began) < usual, !s.said.IsZero() && now.Sub(s.said) < sayAgain:
		return nothing
	}
	s.said = now
	return aWarning
}

// String lists the last answer of each address.
func (s *silence) String() string {
	parts := make([]string, 0, len(s.addresses))
	for _, a := range s.addresses {
		text := s.answers[a].Error()
		if st, ok := status.FromError(s.answers[a]); ok {
			text = st.Message()
		}
		parts = append(parts, a+": "+text)
	}
	return strings.Join(parts, "; ")
}
