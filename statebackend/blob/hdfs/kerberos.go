package hdfs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
)

var errKerberos = errors.New("the Hadoop configuration demands Kerberos")

// kerberosClient returns a client with the tickets of the credential cache. It is read again for each new client, so that a renewed ticket
// is found.
func kerberosClient() (*krb.Client, error) {
	cfg, err := config.Load(cmp.Or(os.Getenv("KRB5_CONFIG"), "/etc/krb5.conf"))
	if err != nil {
		return nil, fmt.Errorf("%w; its own configuration cannot be read, set KRB5_CONFIG: %w", errKerberos, err)
	}
	cache := cmp.Or(os.Getenv("KRB5CCNAME"), "/tmp/krb5cc_"+strconv.Itoa(os.Getuid()))
	kind, file, ok := strings.Cut(cache, ":")
	if !ok {
		file = cache
	} else if kind != "FILE" {
		return nil, fmt.Errorf("%w; KRB5CCNAME=%s is of a kind that cannot be read: use FILE:/path", errKerberos, cache)
	}
	tickets, err := credentials.LoadCCache(file)
	if err != nil {
		return nil, fmt.Errorf("%w; there are no tickets, run kinit on this machine or set KRB5CCNAME: %w", errKerberos, err)
	}
	c, err := krb.NewFromCCache(tickets, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w; the tickets in %s are of no use: %w", errKerberos, file, err)
	}
	return c, nil
}
