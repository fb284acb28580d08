// Package answers says what follows each answer of a broker to each step of the sink's work, those that do not come among it. It is pure:
// the sink asks, React decides, and the sink carries out what it says. No other place of the sink looks into an answer; a client that is not
// franz-go translates its own errors into those of package kerr first.
package answers
