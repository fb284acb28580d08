package steady

import "fmt"

// Error names the operation and the place of a failure, its kind, which is an error of package blob or nil, and the way out where there is
// one.
func Error(op, where string, kind error, hint string, err error) error {
	switch {
	case kind == nil:
		return fmt.Errorf("%s %s: %w", op, where, err)
	case hint == "":
		return fmt.Errorf("%s %s: %w: %w", op, where, kind, err)
	default:
		return fmt.Errorf("%s %s: %w: %s: %w", op, where, kind, hint, err)
	}
}
