// Package stack shortens the stack trace of a recovered panic to what its author looks for: the place, and how it got there.
package stack

import (
	"path"
	"strings"
)

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
	var texts []string
	all := frames(trimmed)
	for _, f := range all[:min(n, len(all))] {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, " < ")
}

// Origin returns the innermost frame of a trimmed trace that is not in the standard library, or the innermost one.
func Origin(trimmed string) string {
	all := frames(trimmed)
	for _, f := range all {
		if !f.standard() {
			return f.String()
		}
	}
	return Top(trimmed, 1)
}

type frame struct{ function, place string }

func (f frame) String() string { return f.function + " (" + f.place + ")" }

// standard reports whether the function is in the standard library, whose files are in src/ and the package's path, or in the latter
// alone in a binary without the paths of its machine.
func (f frame) standard() bool {
	slash := strings.LastIndexByte(f.function, '/') + 1
	name, _, _ := strings.Cut(f.function[slash:], ".")
	pkg := f.function[:slash] + name
	dir := path.Dir(f.place)
	return !strings.Contains(pkg, ".") && (dir == pkg || strings.HasSuffix(dir, "/src/"+pkg))
}

func frames(trimmed string) (all []frame) {
	lines := strings.Split(trimmed, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		place, indented := strings.CutPrefix(lines[i+1], "\t")
		if !indented {
			break
		}
		function := lines[i]
		if args := strings.LastIndexByte(function, '('); args > 0 {
			function = function[:args]
		}
		place, _, _ = strings.Cut(place, " +0x")
		all = append(all, frame{function, place})
	}
	return all
}
