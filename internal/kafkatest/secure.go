package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/testca"
)

// The listeners of [SecureConfig].
const (
	// Password is SASL over plaintext.
	Password = "PASSWORD"
	// Encrypted is SASL over TLS.
	Encrypted = "ENCRYPTED"
	// Expired is the same with a certificate that ended an hour ago.
	Expired = "EXPIRED"
	// Certificate is TLS with a client certificate in place of a password.
	Certificate = "CERTIFICATE"
)

// SecureConfig describes a broker that decides by ACLs and has a listener for each way to prove who one is. users have passwords for
// SASL PLAIN; those for SCRAM are made by [Broker.SetScram]. The plain listeners' user may do everything. Files go to dir.
func SecureConfig(dir string, authority *testca.Authority, users map[string]string) (Config, error) {
	var jaas strings.Builder
	jaas.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
	for _, user := range slices.Sorted(maps.Keys(users)) {
		fmt.Fprintf(&jaas, ` user_%s="%s"`, user, users[user])
	}
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	login := map[string]string{
		// A changed password is noticed by connections that are open.
		"connections.max.reauth.ms":      "2000",
		"sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"plain.sasl.jaas.config":         jaas.String() + ";",
		"scram-sha-256.sasl.jaas.config": scram,
		"scram-sha-512.sasl.jaas.config": scram,
	}
	tls := func(name string, notAfter time.Time) (map[string]string, error) {
		pair, err := authority.Node("broker", notAfter)
		if err != nil {
			return nil, err
		}
		store, trust := filepath.Join(dir, name+".pem"), filepath.Join(dir, "ca.pem")
		return map[string]string{
			"ssl.keystore.type": "PEM", "ssl.keystore.location": store, "ssl.truststore.type": "PEM", "ssl.truststore.location": trust,
		}, errors.Join(os.WriteFile(store, append(pair.Key, pair.Cert...), 0o600), os.WriteFile(trust, authority.PEM(), 0o600))
	}
	good, err := tls("good", time.Now().Add(12*time.Hour))
	if err != nil {
		return Config{}, err
	}
	expired, err := tls("expired", time.Now().Add(-time.Hour))
	if err != nil {
		return Config{}, err
	}
	with := func(of ...map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range of {
			maps.Copy(out, m)
		}
		return out
	}
	return Config{
		Listeners: []Listener{
			{Password, "SASL_PLAINTEXT", login},
			{Encrypted, "SASL_SSL", with(login, good)},
			{Expired, "SASL_SSL", with(login, expired)},
			{Certificate, "SSL", with(good, map[string]string{"ssl.client.auth": "required"})},
		},
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	}, nil
}

// SetScram sets a user's password for SCRAM-SHA-256 and SCRAM-SHA-512.
func (b *Broker) SetScram(ctx context.Context, user, password string) error {
	return b.admin(func(adm *kadm.Client) error {
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			resp, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: user, Mechanism: mechanism, Iterations: 4096, Password: password}})
			if err == nil {
				err = resp.Error()
			}
			if err != nil {
				return wrap("set the password of "+user, err)
			}
		}
		return nil
	})
}

// Right is one thing that a user may do.
type Right struct {
	// Topic, Group or TransactionalID is what it is about; the last one is a prefix.
	Topic, Group, TransactionalID string
	Operation                     kmsg.ACLOperation
}

func (r Right) acl(user string) *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + user).AllowHosts().Operations(r.Operation).ResourcePatternType(kadm.ACLPatternLiteral)
	switch {
	case r.Topic != "":
		b.Topics(r.Topic)
	case r.Group != "":
		b.Groups(r.Group)
	default:
		b.TransactionalIDs(r.TransactionalID).ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	return b
}

// Grant gives a user rights.
func (b *Broker) Grant(ctx context.Context, user string, rights ...Right) error {
	return b.admin(func(adm *kadm.Client) error {
		for _, r := range rights {
			made, err := adm.CreateACLs(ctx, r.acl(user))
			if err != nil {
				return wrap("grant a right", err)
			}
			for _, m := range made {
				if m.Err != nil {
					return wrap("grant a right", m.Err)
				}
			}
		}
		return nil
	})
}

// Revoke takes rights away.
func (b *Broker) Revoke(ctx context.Context, user string, rights ...Right) error {
	return b.admin(func(adm *kadm.Client) error {
		for _, r := range rights {
			gone, err := adm.DeleteACLs(ctx, r.acl(user))
			if err != nil {
				return wrap("revoke a right", err)
			}
			for _, g := range gone {
				if g.Err != nil {
					return wrap("revoke a right", g.Err)
				}
				if len(g.Deleted) == 0 {
					return fmt.Errorf("revoke a right: %s has no such right: %+v", user, r)
				}
			}
		}
		return nil
	})
}
