package confluent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
)

// secure returns the librdkafka properties of a login and certificates.
func secure(s kafkasink.Security) (kafka.ConfigMap, error) {
	if s.Login == nil && s.TLS == nil {
		return nil, nil
	}
	out := kafka.ConfigMap{}
	protocol := "sasl_plaintext"
	if t := s.TLS; t != nil {
		protocol = "ssl"
		if t.ServerName != "" {
			return nil, errors.New("librdkafka checks the host name only: TLS.ServerName cannot be set with this client")
		}
		for property, value := range map[string]string{"ssl.ca.pem": t.CA, "ssl.certificate.pem": t.Certificate, "ssl.key.pem": t.Key} {
			if value == "" {
				continue
			}
			text, err := kafkaconn.PEM(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", property, err)
			}
			out[property] = string(text)
		}
	}
	if l := s.Login; l != nil {
		if s.TLS != nil {
			protocol = "sasl_ssl"
		}
		out["sasl.mechanism"] = strings.ToUpper(l.Mechanism)
		out["sasl.username"], out["sasl.password"] = l.User, l.Password
	}
	out["security.protocol"] = protocol
	return out, nil
}

// note keeps the first refusal among librdkafka's events.
func (p *producer) note(e kafka.Event) {
	ke, ok := e.(kafka.Error)
	if !ok {
		return
	}
	switch ke.Code() {
	case kafka.ErrAuthentication, kafka.ErrSsl:
		err := known(ke)
		p.refused.CompareAndSwap(nil, &err)
	default:
		p.cfg.Logger.Debug("librdkafka", "error", ke.Error())
	}
}

// cause adds what librdkafka has told of a refusal to a call's error, which only speaks of a timeout.
func (p *producer) cause(err error) error {
	if err == nil {
		return nil
	}
	err = known(err)
	if refused := p.refused.Load(); refused != nil && !errors.Is(err, *refused) {
		return fmt.Errorf("%w: %w", err, *refused)
	}
	return err
}

// known adds the error of package kerr, or a sentinel, that means the same as librdkafka's, so that the sink understands it.
func known(err error) error {
	var ke kafka.Error
	if !errors.As(err, &ke) {
		return err
	}
	switch code := ke.Code(); {
	case code == kafka.ErrAuthentication:
		return fmt.Errorf("%w: %w", kafkaconn.ErrLogin, err)
	case code == kafka.ErrSsl:
		return fmt.Errorf("%w: %w", kafkaconn.ErrCertificate, err)
	case code == kafka.ErrTransport, code == kafka.ErrAllBrokersDown, code == kafka.ErrResolve, code == kafka.ErrTimedOut,
		code == kafka.ErrMsgTimedOut, code == kafka.ErrTimedOutQueue:
		return operator.Unavailable(err)
	case code > 0:
		if known := kerr.ErrorForCode(int16(code)); known != nil {
			return fmt.Errorf("%w: %w", known, err)
		}
	}
	return err
}
