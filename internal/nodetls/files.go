package nodetls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Files names PEM files; an empty name stands for none.
type Files struct {
	// Cert holds the certificate, followed by intermediate ones if there are any, and Key its private key.
	Cert, Key string
	// CA holds the certificates of the authorities that sign nodes' certificates.
	CA string
	// UserCA holds those of the authorities that sign users' certificates.
	UserCA string
}

// Enabled reports whether TLS is asked for.
func (f Files) Enabled() bool { return f.Cert != "" || f.Key != "" || f.CA != "" || f.UserCA != "" }

// ValidateNode checks that a node has all that it needs, or nothing. The error names configuration keys.
func (f Files) ValidateNode() error {
	if !f.Enabled() {
		return nil
	}
	var missing []string
	for _, k := range []struct{ key, name string }{{"tls_cert", f.Cert}, {"tls_key", f.Key}, {"tls_ca", f.CA}} {
		if k.name == "" {
			missing = append(missing, k.key)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%s: must be set too; TLS needs tls_cert, tls_key and tls_ca, all of them or none", strings.Join(missing, ", "))
}

// material is what a set of files says. It does not change.
type material struct {
	cert *tls.Certificate // nil for a user without one
	// nodes are the authorities of nodes; known has those of users too.
	nodes, known *x509.CertPool
}

// expires returns when the certificate does; zero when there is none.
func (m *material) expires() time.Time {
	if m.cert == nil {
		return time.Time{}
	}
	return m.cert.Leaf.NotAfter
}

// load reads the files.
func load(f Files) (*material, error) {
	m := &material{nodes: x509.NewCertPool(), known: x509.NewCertPool()}
	nodes, err := authorities("tls_ca", f.CA)
	if err != nil {
		return nil, err
	}
	for _, c := range nodes {
		m.nodes.AddCert(c)
		m.known.AddCert(c)
	}
	if f.UserCA != "" {
		users, err := authorities("user_ca", f.UserCA)
		if err != nil {
			return nil, err
		}
		for _, c := range users {
			// A user with a chain that leads to tls_ca would be taken for a node.
			if _, err := c.Verify(x509.VerifyOptions{Roots: m.nodes, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
				return nil, fmt.Errorf("%s: %s is, or is signed by, an authority of %s, so that its users would be nodes; use an authority of their own",
					f.UserCA, name(c), f.CA)
			}
			m.known.AddCert(c)
		}
	}
	if f.Cert == "" && f.Key == "" {
		return m, nil
	}
	m.cert, err = pair(f)
	return m, err
}

// pair reads certificate and key. Its errors never hold anything of the key.
func pair(f Files) (*tls.Certificate, error) {
	certPEM, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("tls_cert: read the certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("tls_key: read the key: %w", err)
	}
	defer clear(keyPEM)
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	if cert.Leaf == nil {
		return nil, fmt.Errorf("certificate %s: cannot be parsed", f.Cert)
	}
	return &cert, nil
}

var errNoCertificate = errors.New("holds no certificate in PEM form")

// authorities reads a file of one or more certificates, which a configuration key names.
func authorities(key, file string) ([]*x509.Certificate, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: read the authorities: %w", key, err)
	}
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: holds a %s where certificates of authorities belong", file, strings.ToLower(block.Type))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if c.BasicConstraintsValid && !c.IsCA {
			return nil, fmt.Errorf("%s: %s is not the certificate of an authority", file, name(c))
		}
		out = append(out, c)
	}
	if len(out) == 0 || len(bytes.TrimSpace(rest)) > 0 && bytes.Contains(rest, []byte("-----BEGIN")) {
		return nil, fmt.Errorf("%s: %w, or is cut short", file, errNoCertificate)
	}
	return out, nil
}

// doubts returns why peers with the same authorities will refuse the certificate; nil when they will not.
func (m *material) doubts(usages []x509.ExtKeyUsage) error {
	if m.cert == nil {
		return nil
	}
	intermediates := x509.NewCertPool()
	for _, der := range m.cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
	}
	for _, usage := range usages {
		_, err := m.cert.Leaf.Verify(x509.VerifyOptions{Roots: m.nodes, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: []*x509.Certificate{m.cert.Leaf}, Err: err}
		}
	}
	return nil
}

// name describes a certificate for people.
func name(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return s
	}
	if len(c.DNSNames) > 0 {
		return "CN=" + c.DNSNames[0]
	}
	return "a certificate without a name"
}
