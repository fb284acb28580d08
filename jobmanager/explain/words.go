package explain

import (
	"fmt"
	"strings"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// span writes a duration with what matters of it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	s := d.Round(time.Second).String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}

// rate writes a number of records with a unit that keeps it readable.
func rate(n float64) string {
	switch {
	case n < 0:
		return "an unknown number of"
	case n < 10 && n != float64(int64(n)):
		return fmt.Sprintf("%.1f", n)
	case n < 1e4:
		return fmt.Sprintf("%.0f", n)
	case n < 1e7:
		return fmt.Sprintf("%.1fk", n/1e3)
	}
	return fmt.Sprintf("%.1fM", n/1e6)
}

func stateName(s jobv1.JobState) string { return strings.TrimPrefix(s.String(), "JOB_STATE_") }

// most is how many names or details are listed.
const most = 5

// some lists names for people.
func some(names []string) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

func limit[T any](all []T) []T { return all[:min(len(all), most)] }

func orNone(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return some(names)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func times(n int) string { return plural(n, "once", fmt.Sprintf("%d times", n)) }

// cause is a failure with its place.
func cause(f *jobv1.Failure) string {
	switch {
	case f.GetTask() != "" && f.GetHost() != "":
		return fmt.Sprintf("%s on %s: %s", f.GetTask(), f.GetHost(), f.GetMessage())
	case f.GetTask() != "":
		return f.GetTask() + ": " + f.GetMessage()
	case f.GetHost() != "":
		return "on " + f.GetHost() + ": " + f.GetMessage()
	}
	return f.GetMessage()
}

// maxLine bounds a cause within one line, in bytes.
const maxLine = 200

func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > maxLine {
		s = strings.ToValidUTF8(s[:maxLine], "") + "..."
	}
	return s
}
