package process

import (
	"time"

	"github.com/weir-stream/weir/statebackend"
)

// TTL is a time to live: how long what was written to a state stays there. It is made by [ProcessingTimeTTL] or [EventTimeTTL].
type TTL struct{ ttl statebackend.TTL }

// ProcessingTimeTTL lets an entry expire when the clock is at d after its last write.
func ProcessingTimeTTL(d time.Duration) TTL { return TTL{statebackend.TTL{After: d}} }

// EventTimeTTL lets an entry expire when the watermark has come to d after its last write, which is at the time of the record or timer
// that was being handled, or at the watermark if that was further. So a record finds what any record less than d before it has written,
// and time spent without records, or handling old ones, expires nothing.
func EventTimeTTL(d time.Duration) TTL { return TTL{statebackend.TTL{After: d, EventTime: true}} }

// RefreshedByReads makes an entry live on for the same time whenever it is read. Each such read is a change that the next checkpoint
// writes.
func (t TTL) RefreshedByReads() TTL {
	t.ttl.RefreshedByReads = true
	return t
}
