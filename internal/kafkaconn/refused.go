package kafkaconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/operator"
)

// Sentinels for clients that have no error of their own for these.
var (
	// ErrCertificate tells that a broker's certificate is not accepted.
	ErrCertificate = errors.New("certificate not accepted")
	// ErrLogin tells that a broker refuses user or password.
	ErrLogin = errors.New("login refused")
)

// Access is what a request wanted to do, to name the right that it lacks. Names that do not apply are empty.
type Access struct {
	// Operation is the ACL operation that the request needs on the resource, such as "Write".
	Operation string
	// Topic, Group and TransactionalID are the resources; the answer tells which of them is meant.
	Topic, Group, TransactionalID string
}

type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string   { return r.text + ": " + r.err.Error() }
func (r *refusal) Unwrap() []error { return []error{operator.ErrRefused, r.err} }

// Refused returns an error that names the cause and wraps [operator.ErrRefused] when err says that the cluster refuses us, or we its
// certificate: login, right or certificate. Otherwise it returns nil. An error that is a refusal already is returned as it is.
//
// It has no class of failure: a job that never worked fails with it, and one that did is restarted under its policy, since rights,
// passwords and certificates are mended while jobs run, and a restart reads them anew.
func Refused(err error, on Access) error {
	var cert *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	refuse := func(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...), err} }
	denied := func(resource, name string) error {
		if name == "" {
			return refuse("authorisation failed: the user lacks a right on a %s", resource)
		}
		return refuse("authorisation failed: the user lacks the right %s on %s %q", on.Operation, resource, name)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, operator.ErrRefused):
		return err
	case errors.As(err, &cert), errors.Is(err, ErrCertificate):
		return refuse("the broker's certificate is not accepted; check its validity and the authorities given")
	case errors.As(err, &header):
		return refuse("TLS failed: this port of the broker does not speak TLS")
	case ownCertificate(err):
		return refuse("the broker does not accept our certificate")
	case errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return refuse("authentication failed: the broker does not offer this SASL mechanism on this port")
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, ErrLogin):
		return refuse("authentication failed; check user, password and mechanism")
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return denied("topic", on.Topic)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return denied("transactional id", on.TransactionalID)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return denied("group", on.Group)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return refuse("authorisation failed: the user lacks a right on the cluster (IdempotentWrite, or Write on a topic, for producers)")
	}
	return nil
}

// OrRefused is Refused that marks errors by which brokers do not answer, or cannot yet, as [operator.Unavailable], and leaves other errors
// as they are.
func OrRefused(err error, on Access) error {
	if refused := Refused(err, on); refused != nil {
		return refused
	}
	if err != nil && operator.ClassOf(err) == operator.ClassRestart && silent(err) {
		return operator.Unavailable(err)
	}
	return err
}

// silent tells of errors beyond those of the network itself: the client's word for a connection that broke or a record that no broker took,
// and what brokers answer while they start, choose leaders, or lack replicas.
func silent(err error) bool {
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.CorruptMessage) {
		return false // the client asks again, but it is about a topic
	}
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, kgo.ErrRecordTimeout) || errors.Is(err, kgo.ErrRecordRetries) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// certificateAlerts are the TLS alerts by which a peer refuses our certificate, or asks for one.
var certificateAlerts = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// ownCertificate reports whether err is such an alert. The type of a received alert is not exported; its text is that of the exported
// type.
func ownCertificate(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || op.Err == nil {
		return false
	}
	return slices.ContainsFunc(certificateAlerts, func(a tls.AlertError) bool { return a.Error() == op.Err.Error() })
}
