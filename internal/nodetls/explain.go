package nodetls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Why a connection does not come about. Trying again does not help until somebody has changed something.
var (
	// ErrPlain: the other side does not use TLS, and this one does.
	ErrPlain = errors.New("the other side does not use TLS")
	// ErrWantsTLS: the other side uses TLS, and this one does not.
	ErrWantsTLS = errors.New("the other side demands TLS")
	// ErrUntrusted: the certificate of the other side is not accepted here.
	ErrUntrusted = errors.New("the other side's certificate is not accepted")
	// ErrRefused: the other side does not accept this one's certificate, or wants one.
	ErrRefused = errors.New("the other side does not accept this side's certificate")
)

// Settled reports whether err is trouble that somebody has to mend.
func Settled(err error) bool {
	return errors.Is(err, ErrPlain) || errors.Is(err, ErrWantsTLS) || errors.Is(err, ErrUntrusted) || errors.Is(err, ErrRefused)
}

// troubleError is an error in words for people.
type troubleError struct {
	kind error
	text string
	err  error
}

func (e *troubleError) Error() string   { return e.text }
func (e *troubleError) Unwrap() []error { return []error{e.kind, e.err} }

func trouble(kind error, text string, err error) error {
	return &troubleError{kind, kind.Error() + text, err}
}

// explain words what went wrong with a connection under TLS.
func explain(err error) error {
	var (
		header  tls.RecordHeaderError
		verify  *tls.CertificateVerificationError
		network *net.OpError
		already *troubleError
	)
	switch {
	case err == nil, errors.As(err, &already):
		return err
	case errors.As(err, &header):
		return trouble(ErrPlain, "", err)
	case errors.As(err, &verify):
		return trouble(ErrUntrusted, ": "+reason(verify), err)
	case errors.As(err, &network) && network.Op == "remote error":
		return trouble(ErrRefused, " ("+network.Err.Error()+"); what it logs or prints says why", err)
	}
	return err
}

// reason tells what is wrong with a certificate, and whose it is.
func reason(err error) string {
	var v *tls.CertificateVerificationError
	if !errors.As(err, &v) || len(v.UnverifiedCertificates) == 0 {
		return err.Error()
	}
	c := v.UnverifiedCertificates[0]
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(v.Err, &unknown):
		return fmt.Sprintf("%s was issued by %s, which is not one of the authorities known here", name(c), c.Issuer)
	case errors.As(v.Err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("%s is valid from %s to %s only", name(c), c.NotBefore.UTC().Format(dateTime), c.NotAfter.UTC().Format(dateTime))
	case errors.As(v.Err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Sprintf("%s lacks the extended key usage for this side of a connection; nodes need serverAuth and clientAuth, users clientAuth", name(c))
	}
	return fmt.Sprintf("%s: %v", name(c), v.Err)
}

const dateTime = "2006-01-02 15:04:05 UTC"

// gone reports whether err is the end of a connection and no more.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
