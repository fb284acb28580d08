package postgressink

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
	Rows     int64  `json:"rows"`
	// Server is the system identifier of the server, Database the database in it.
	Server   string `json:"server"`
	Database string `json:"database"`
	// Schema is that of the bookkeeping.
	Schema string `json:"schema"`
	// Table is where the rows go.
	Table []string `json:"table"`
	// Staging is nil for a prepared transaction.
	Staging *staging `json:"staging,omitempty"`

	payload []byte
}

// staging says where the rows of a staged transaction are and how they are to be moved.
type staging struct {
	Table   string   `json:"table"` // in the schema of the bookkeeping
	Columns []string `json:"columns"`
	Keys    []string `json:"keys,omitempty"`
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
	if p.Sink == "" || p.Sequence == 0 || p.Rows == 0 || p.Schema == "" || len(p.Table) == 0 {
		return nil, fmt.Errorf("%w: a field is missing", errMalformed)
	}
	if p.Staging != nil && (p.Staging.Table == "" || len(p.Staging.Columns) == 0) {
		return nil, fmt.Errorf("%w: a field of the staging table is missing", errMalformed)
	}
	return &p, nil
}
