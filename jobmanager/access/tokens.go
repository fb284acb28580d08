package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/weir-stream/weir/internal/filestamp"
)

// minToken is the least length of a token in characters; shorter ones can be guessed.
const minToken = 20

// Tokens are the users' tokens of a file. The file is read again when it has changed.
//
// Each line holds a token and, after blanks, the name of its user. Empty lines and those that begin with # are skipped.
type Tokens struct {
	file   string
	logger *slog.Logger

	mu      sync.Mutex
	seen    filestamp.Stamp
	entries []entry
}

type entry struct {
	name string
	hash [sha256.Size]byte
}

// OpenTokens reads the file.
func OpenTokens(file string, logger *slog.Logger) (*Tokens, error) {
	t := &Tokens{file: file, logger: logger, seen: filestamp.Of(file)}
	var err error
	t.entries, err = readTokens(file)
	if err != nil {
		return nil, err
	}
	t.checkMode()
	return t, nil
}

// User returns the name of the user that a token belongs to, and whether it is a token.
func (t *Tokens) User(token string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, e := range t.get() { // all of them, whichever it is
		if subtle.ConstantTimeCompare(hash[:], e.hash[:]) == 1 {
			name, ok = e.name, true
		}
	}
	return name, ok
}

func (t *Tokens) get() []entry {
	now := filestamp.Of(t.file)
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Equal(t.seen) {
		return t.entries
	}
	t.seen = now
	entries, err := readTokens(t.file)
	if err != nil {
		t.logger.Warn("file of user tokens has changed and cannot be used, the former tokens stay in force", "error", err)
		return t.entries
	}
	t.entries = entries
	t.logger.Info("user tokens read again", "file", t.file, "tokens", len(entries))
	t.checkMode()
	return entries
}

func (t *Tokens) checkMode() {
	if len(t.seen) == 1 && t.seen[0] != nil && t.seen[0].Mode()&0o004 != 0 {
		t.logger.Warn("file of user tokens can be read by every user of this machine", "file", t.file, "mode", t.seen[0].Mode().String())
	}
}

var errShortToken = fmt.Errorf("a token has at least %d characters; make one with: openssl rand -hex 32", minToken)

// readTokens reads a file. Errors name lines, never what is in them.
func readTokens(file string) ([]entry, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the user tokens: %w", err)
	}
	defer clear(raw)
	var (
		out  []entry
		errs []error
		n    int
	)
	for line := range bytes.Lines(raw) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		end := bytes.IndexAny(line, " \t")
		if end < 0 {
			end = len(line)
		}
		if end < minToken {
			errs = append(errs, fmt.Errorf("%s: line %d: %w", file, n, errShortToken))
			continue
		}
		e := entry{name: strings.TrimSpace(string(line[end:])), hash: sha256.Sum256(line[:end])}
		if e.name == "" {
			e.name = fmt.Sprintf("token of line %d", n)
		}
		out = append(out, e)
	}
	return out, errors.Join(errs...)
}
