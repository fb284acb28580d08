// Package testca makes certificate authorities and certificates for tests and for clusters on this machine alone.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

// life is how long authorities and users' certificates are valid.
const life = 60 * 24 * time.Hour

// New returns an authority.
func New(name string) (*Authority, error) { return create(name, nil) }

// Sub returns an authority that a has signed.
func (a *Authority) Sub(name string) (*Authority, error) { return create(name, a) }

// create returns an authority that its parent has signed, or it itself when that is nil.
func create(name string, parent *Authority) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(name, time.Now().Add(life))
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	by := &Authority{cert: template, key: key}
	if parent != nil {
		by = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert: cert, key: key, der: der}, err
}

func template(name string, until time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
	}, nil
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
}

// Pair is a certificate with its key, in PEM form.
type Pair struct{ Cert, Key []byte }

// Node returns a certificate for both sides of a connection, for loopback, valid until a time.
func (a *Authority) Node(name string, until time.Time) (Pair, error) {
	return a.issue(name, until, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

// Server returns a certificate for the listening side only.
func (a *Authority) Server(name string, until time.Time) (Pair, error) {
	return a.issue(name, until, x509.ExtKeyUsageServerAuth)
}

// User returns a certificate for clients only.
func (a *Authority) User(name string) (Pair, error) {
	return a.issue(name, time.Now().Add(life), x509.ExtKeyUsageClientAuth)
}

func (a *Authority) issue(name string, until time.Time, usage ...x509.ExtKeyUsage) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := template(name, until)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, usage
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// Write writes the pair to dir as NAME.crt and NAME.key, each in one step, and returns the names.
func (p Pair) Write(dir, name string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := WriteFile(cert, p.Cert); err != nil {
		return "", "", err
	}
	return cert, key, WriteFile(key, p.Key)
}

// WriteFile replaces a file in one step.
func WriteFile(name string, content []byte) error {
	tmp := name + ".new"
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
