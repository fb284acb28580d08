package confluent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/weir-stream/weir/internal/kafkaconn"
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
