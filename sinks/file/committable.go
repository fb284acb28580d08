package filesink

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-stream/weir/sinks"
)

// committableVersion is the version of the encoding below. Older ones must stay readable.
const committableVersion = 1

// prepared is what is needed to finish a transaction, from any process at any time.
type prepared struct {
	writer
	Sequence uint64 `json:"sequence"`
	Files    []file `json:"files"`
	payload  []byte
}

// file is a pending file and the name that it is to get.
type file struct {
	Pending string `json:"pending"`
	Final   string `json:"final"`
	Records int64  `json:"records"`
}

func (p *prepared) encode() (sinks.Committable, error) {
	payload, err := json.Marshal(p)
	return sinks.Committable{Version: committableVersion, Payload: payload}, err
}

var errMalformed = errors.New("malformed committable")

func decodeCommittable(c sinks.Committable) (*prepared, error) {
	if c.Version != committableVersion {
		return nil, fmt.Errorf("committable of version %d: this program reads version %d; use the version of Weir that wrote it", c.Version, committableVersion)
	}
	p := prepared{payload: c.Payload}
	if err := json.Unmarshal(c.Payload, &p); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if p.Sink == "" || p.Sequence == 0 || len(p.Files) == 0 {
		return nil, fmt.Errorf("%w: a field is missing", errMalformed)
	}
	for _, f := range p.Files {
		if f.Pending == "" || f.Final == "" {
			return nil, fmt.Errorf("%w: a name is missing", errMalformed)
		}
	}
	return &p, nil
}
