// Package stack shortens the stack trace of a recovered panic to what its author looks for: the place, and how it got there.
package stack

import "strings"

// Trim returns a trace as debug.Stack writes it without what is above the function that panicked, and without a last line break. Another
// text is returned as it is.
func Trim(trace string) string {
	trace = strings.TrimSpace(trace)
	lines := strings.Split(trace, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "panic(") {
			continue
		}
		// Two lines for each frame; a fault in the processor's sense goes through functions of the runtime.
		i += 2
		for i < len(lines) && strings.HasPrefix(lines[i], "runtime.") {
			i += 2
		}
		if i < len(lines) {
			return strings.Join(lines[i:], "\n")
		}
	}
	return trace
}

// Top returns up to n frames of a trimmed trace in one line, innermost first: "main.decode (/src/job.go:12) < main.main (/src/job.go:9)".
func Top(trimmed string, n int) string {
	var frames []string
	lines := strings.Split(trimmed, "\n")
	for i := 0; i+1 < len(lines) && len(frames) < n; i += 2 {
		place, indented := strings.CutPrefix(lines[i+1], "\t")
		if !indented {
			break
		}
		function := lines[i]
		if args := strings.LastIndexByte(function, '('); args > 0 {
			function = function[:args]
		}
		place, _, _ = strings.Cut(place, " +0x")
		frames = append(frames, function+" ("+place+")")
	}
	return strings.Join(frames, " < ")
}
