package kafkaconn_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/operator"
)

func TestRefusalsNameTheCause(t *testing.T) {
	on := kafkaconn.Access{Operation: "Write", Topic: "totals", Group: "lag", TransactionalID: "weir.1"}
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"topic":            {kerr.TopicAuthorizationFailed, `the user lacks the right Write on topic "totals"`},
		"group":            {kerr.GroupAuthorizationFailed, `the user lacks the right Write on group "lag"`},
		"transactional id": {kerr.TransactionalIDAuthorizationFailed, `the user lacks the right Write on transactional id "weir.1"`},
		"cluster":          {kerr.ClusterAuthorizationFailed, "a right on the cluster"},
		"password":         {kerr.SaslAuthenticationFailed, "authentication failed"},
		"mechanism":        {kerr.UnsupportedSaslMechanism, "SASL mechanism"},
		"their certificate": {
			&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "certificate is not accepted",
		},
		"our certificate":  {&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, "does not accept our certificate"},
		"no TLS there":     {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "does not speak TLS"},
		"librdkafka login": {kafkaconn.ErrLogin, "authentication failed"},
		"librdkafka TLS":   {kafkaconn.ErrCertificate, "certificate is not accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := kafkaconn.Refused(fmt.Errorf("ask: %w", c.err), on)
			require.ErrorIs(t, refused, operator.ErrRefused)
			require.ErrorIs(t, refused, c.err)
			require.ErrorContains(t, refused, c.text)
			require.Equal(t, operator.ClassRestart, operator.ClassOf(refused))
			require.Equal(t, refused, kafkaconn.Refused(refused, kafkaconn.Access{}), "the first name stays")
		})
	}
	for _, err := range []error{
		nil, errors.New("connection refused"), kerr.NotLeaderForPartition, &net.OpError{Op: "remote error", Err: tls.AlertError(80)},
	} {
		require.NoError(t, kafkaconn.Refused(err, on))
	}
}

func TestSilenceIsNeitherARefusalNorTheJobsFault(t *testing.T) {
	for _, err := range []error{
		kerr.CoordinatorNotAvailable, kerr.NotEnoughReplicas, kgo.ErrRecordTimeout, io.EOF, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
	} {
		got := kafkaconn.OrRefused(fmt.Errorf("ask: %w", err), kafkaconn.Access{})
		require.ErrorIs(t, got, err)
		require.Equal(t, operator.ClassUnavailable, operator.ClassOf(got), err)
	}
	for _, err := range []error{kerr.SaslAuthenticationFailed, kerr.UnknownTopicOrPartition, kerr.InvalidTxnState, errors.New("boom")} {
		require.Equal(t, operator.ClassRestart, operator.ClassOf(kafkaconn.OrRefused(err, kafkaconn.Access{})), err)
	}
	require.NoError(t, kafkaconn.OrRefused(nil, kafkaconn.Access{}))
}

func TestSecurityIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		security kafkaconn.Security
		text     string
	}{
		"mechanism":            {kafkaconn.Security{Login: &kafkaconn.Login{Mechanism: "GSSAPI", User: "u", Password: "p"}}, "GSSAPI"},
		"user":                 {kafkaconn.Security{Login: &kafkaconn.Login{Mechanism: "PLAIN", Password: "p"}}, "user"},
		"password":             {kafkaconn.Security{Login: &kafkaconn.Login{Mechanism: "PLAIN", User: "u"}}, "${file:PATH}"},
		"key":                  {kafkaconn.Security{TLS: &kafkaconn.TLS{Certificate: "/c.pem"}}, "Key"},
		"nothing":              {kafkaconn.Security{}, ""},
		"references, unsolved": {kafkaconn.Security{Login: &kafkaconn.Login{Mechanism: "${env:M}", User: "${env:U}", Password: "${env:P}"}}, ""},
		"lower case":           {kafkaconn.Security{Login: &kafkaconn.Login{Mechanism: "scram-sha-512", User: "u", Password: "p"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.security.Validate()
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestCertificatesComeFromFilesAndText(t *testing.T) {
	authority, err := testca.New("test")
	require.NoError(t, err)
	pair, err := authority.Node("client", time.Now().Add(time.Hour))
	require.NoError(t, err)
	cert, key := pair.Cert, pair.Key
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	for _, s := range []kafkaconn.TLS{
		{CA: string(authority.PEM()), Certificate: string(cert), Key: string(key)},
		{CA: file("ca", authority.PEM()), Certificate: file("cert", cert), Key: file("key", key)},
	} {
		opts, err := kafkaconn.Security{TLS: &s}.Options()
		require.NoError(t, err)
		require.Len(t, opts, 1)
	}
	for name, s := range map[string]kafkaconn.TLS{
		"no such file":    {CA: filepath.Join(dir, "absent")},
		"no certificate":  {CA: file("empty", []byte("hello"))},
		"key of another":  {Certificate: string(cert), Key: string(otherKey(t, authority))},
		"key not text":    {Certificate: string(cert), Key: file("broken", []byte("hello"))},
		"text of no kind": {CA: "-----BEGIN NOTHING-----"},
		"key without PEM": {Certificate: string(cert), Key: "MIIBEGINhunter2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kafkaconn.Security{TLS: &s}.Options()
			require.ErrorContains(t, err, "certificate")
			require.NotContains(t, err.Error(), "BEGIN", "PEM text is told")
		})
	}
}

func otherKey(t *testing.T, a *testca.Authority) []byte {
	t.Helper()
	pair, err := a.Node("other", time.Now().Add(time.Hour))
	require.NoError(t, err)
	return pair.Key
}

func TestSecretsAreNotFormatted(t *testing.T) {
	s := kafkaconn.Security{
		Login: &kafkaconn.Login{Mechanism: "PLAIN", User: "u", Password: "hunter2"}, TLS: &kafkaconn.TLS{Key: "hunter2"},
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(format, s), "hunter2")
		require.NotContains(t, fmt.Sprintf(format, *s.Login), "hunter2")
		require.NotContains(t, fmt.Sprintf(format, *s.TLS), "hunter2")
	}
}
