package exchange

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// keyInfo names what the derived key is for; another use of the token must take another.
const keyInfo = "weir data connection v1"

var (
	errStranger = errors.New("it does not have the key of this attempt")
	errNoToken  = errors.New("the attempt has no token, without which anybody could connect")
)

// tls returns the configuration of both ends of the attempt's data connections. All workers of an attempt have the same key pair,
// derived from its token (HKDF-SHA256 to an Ed25519 seed), and each demands that the other end has it too. So the token proves who is
// there without being sent, and a job's code needs no node's key. stranger, if any, is called when the other end has another key.
func (a Attempt) tls(stranger func()) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, []byte(a.Token), []byte(fmt.Sprintf("%s/%d", a.Job, a.Attempt)), keyInfo, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key of the attempt: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir worker"},
		// Only the key counts, whatever the clocks say.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the attempt: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no authority: VerifyConnection compares the key, of which the handshake has proven the possession.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 && public.Equal(s.PeerCertificates[0].PublicKey) {
				return nil
			}
			if stranger != nil {
				stranger()
			}
			return errStranger
		},
	}, nil
}
