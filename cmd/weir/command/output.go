package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// writeJSON writes a message as indented JSON with every field. The bytes are stable, which protojson alone does not promise.
func writeJSON(w io.Writer, m proto.Message) error {
	raw, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	out.WriteByte('\n')
	_, err = w.Write(out.Bytes())
	return err
}

// compact removes the white space that protojson puts in at random.
func compact(raw []byte) []byte {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return raw
	}
	return out.Bytes()
}

// writeTable writes rows in columns; the first one is the head.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// stateName is a job state for people.
func stateName(s jobv1.JobState) string {
	return strings.TrimPrefix(s.String(), "JOB_STATE_")
}

// ended reports whether a job will never run again.
func ended(s jobv1.JobState) bool {
	switch s {
	case jobv1.JobState_JOB_STATE_FINISHED, jobv1.JobState_JOB_STATE_FAILED, jobv1.JobState_JOB_STATE_CANCELED, jobv1.JobState_JOB_STATE_STOPPED:
		return true
	default:
		return false
	}
}

// short writes a duration with two significant parts at most.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return trimZero(d.Round(time.Second).String(), "m0s", "m")
	case d < 48*time.Hour:
		return trimZero(d.Round(time.Minute).String(), "m0s", "m")
	default:
		return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
	}
}

func trimZero(s, zero, unit string) string {
	if t, ok := strings.CutSuffix(s, zero); ok {
		return t + unit
	}
	return s
}

// count writes a number of things with a unit that keeps it readable.
func count(n float64) string {
	switch {
	case n < 0:
		return "-"
	case n < 10 && n != float64(int64(n)):
		return fmt.Sprintf("%.1f", n)
	case n < 1e4:
		return fmt.Sprintf("%.0f", n)
	case n < 1e7:
		return fmt.Sprintf("%.1fk", n/1e3)
	case n < 1e10:
		return fmt.Sprintf("%.1fM", n/1e6)
	default:
		return fmt.Sprintf("%.1fG", n/1e9)
	}
}

// size writes a number of bytes.
func size(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}

// clock writes a wall-clock time in milliseconds since the epoch.
func clock(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// parallelism is the largest of a job's vertices, which is the number of slots that it takes.
func parallelism(g *jobv1.Graph) uint32 {
	var n uint32
	for _, v := range g.GetVertices() {
		n = max(n, v.GetParallelism())
	}
	return n
}

// failureText is a failure with its place and the output of a process that died.
func failureText(f *jobv1.Failure) string {
	text := f.GetMessage()
	switch {
	case f.GetTask() != "" && f.GetHost() != "":
		text = fmt.Sprintf("%s on %s: %s", f.GetTask(), f.GetHost(), text)
	case f.GetTask() != "":
		text = f.GetTask() + ": " + text
	case f.GetHost() != "":
		text = "on " + f.GetHost() + ": " + text
	}
	if tail := strings.TrimRight(f.GetOutputTail(), "\n"); tail != "" {
		heading := "last output of the worker:"
		if f.GetTask() != "" {
			heading = "the stack of the task:"
		}
		text += "\n" + heading + "\n  " + strings.ReplaceAll(tail, "\n", "\n  ")
	}
	return text
}

// lastFailure returns a job's latest failure as text, empty without one.
func lastFailure(j *jobv1.Job) string {
	if f := j.GetFailures(); len(f) > 0 {
		return failureText(f[len(f)-1])
	}
	return ""
}

// worded turns an error into what a user can act on.
func worded(err error) string {
	var unknown *client.UnknownOutcomeError
	var unseen *unseenError
	if errors.Is(err, context.Canceled) && !errors.As(err, &unknown) && !errors.As(err, &unseen) {
		return "interrupted" // and nothing was changed
	}
	if hint := securityHint(err); hint != "" {
		return err.Error() + "\n" + hint
	}
	var lost *client.NoLeaderError
	if errors.As(err, &lost) && !errors.Is(err, grpcerr.ErrNotLeader) { // no JobManager has answered
		return err.Error() + "\nThe addresses of the JobManagers are set with --jobmanager or WEIR_JOBMANAGER"
	}
	return err.Error()
}
