package kafkaconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The SASL mechanisms, as Kafka names them.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
)

// Security says how a client proves who it is and whom it trusts. The zero value is a plaintext connection without a login.
type Security struct {
	Login *Login
	TLS   *TLS
}

// Login is a SASL login by user and password.
type Login struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism string
	User      string
	Password  string
}

// String leaves the password out, and so does everything that formats a Login.
func (l Login) String() string { return l.Mechanism + " login of " + l.User }

// GoString leaves the password out.
func (l Login) GoString() string { return l.String() }

// TLS describes an encrypted connection. Certificates and keys are PEM: either the text itself, as ${file:PATH} in an argument yields
// it, or the absolute path of a file on the TaskManager's machine.
type TLS struct {
	// CA holds the certificates of the authorities that brokers are trusted by; empty for those of the system.
	CA string
	// Certificate and Key are the client's own, for brokers that ask for one; both or none.
	Certificate, Key string
	// ServerName is the name that the brokers' certificates must be made out to; empty for the host that is connected to.
	ServerName string
}

// String leaves the key out.
func (t TLS) String() string { return "TLS" }

// GoString leaves the key out.
func (t TLS) GoString() string { return t.String() }

// unresolved reports whether a value is a reference that is resolved on the TaskManager only, so that it cannot be checked before.
func unresolved(value string) bool { return strings.Contains(value, "${") }

// Validate returns every problem that shows without files and brokers.
func (s Security) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if l := s.Login; l != nil {
		if _, err := l.mechanism(); err != nil && !unresolved(l.Mechanism) {
			problems = append(problems, err)
		}
		if l.User == "" {
			bad("SASL needs a user")
		}
		if l.Password == "" {
			bad("SASL needs a password; give a reference such as ${file:PATH} or ${env:NAME}")
		}
	}
	if t := s.TLS; t != nil && (t.Certificate == "") != (t.Key == "") {
		bad("a client certificate needs both Certificate and Key")
	}
	return errors.Join(problems...)
}

func (l *Login) mechanism() (sasl.Mechanism, error) {
	switch strings.ToUpper(l.Mechanism) {
	case MechanismPlain:
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism(), nil
	case MechanismScramSHA256:
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism(), nil
	case MechanismScramSHA512:
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("SASL mechanism %q is not supported; use %s, %s or %s", l.Mechanism, MechanismPlain, MechanismScramSHA256, MechanismScramSHA512)
}

// Options returns what a franz-go client needs. Files are read now.
func (s Security) Options() ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if s.Login != nil {
		m, err := s.Login.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	if s.TLS != nil {
		cfg, err := s.TLS.config()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.Dialer(dialTLS(cfg)))
	}
	return opts, nil
}

const dialTimeout = 10 * time.Second

// dialTLS returns a dialer whose errors name the broker: of several, one may have the expired certificate.
func dialTLS(cfg *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: cfg}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, fmt.Errorf("broker %s: %w", address, err)
		}
		return conn, nil
	}
}

func (t *TLS) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := PEM(t.CA)
		if err != nil {
			return nil, fmt.Errorf("certificates of the authorities: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates of the authorities: %s holds no PEM certificate", place(t.CA))
		}
	}
	if t.Certificate == "" {
		return cfg, nil
	}
	cert, err := PEM(t.Certificate)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	key, err := PEM(t.Key)
	if err != nil {
		return nil, fmt.Errorf("key of the client certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

const pemBegin = "-----BEGIN "

// errNotPEM does not say what was given, which may be a key in another form.
var errNotPEM = errors.New("neither PEM text nor the absolute path of a file")

// PEM returns a value that is PEM text, or the content of the file that it names by an absolute path.
func PEM(value string) ([]byte, error) {
	switch {
	case strings.Contains(value, pemBegin):
		return []byte(value), nil
	case !filepath.IsAbs(value):
		return nil, errNotPEM
	}
	return os.ReadFile(value)
}

// place says where a PEM value comes from, without telling its text.
func place(value string) string {
	if strings.Contains(value, pemBegin) {
		return "the text given"
	}
	return value
}
