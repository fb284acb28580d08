package hdfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"path"
	"strings"
	"time"

	client "github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

const (
	// defaultStall is how long a connection may stand still.
	defaultStall = 30 * time.Second
	minStall     = 100 * time.Millisecond
	// defaultPort is that of a NameNode's RPCs.
	defaultPort = "8020"
	// puts is the number of objects written at a time.
	puts = 16
)

// OpenURL opens the bucket at an address like hdfs://namenode:8020/weir. It asks the NameNode nothing. The host may be a nameservice of
// the Hadoop configuration in HADOOP_CONF_DIR.
func OpenURL(_ context.Context, address string) (blob.Bucket, error) {
	b, err := open(address)
	if err != nil {
		return nil, fmt.Errorf("checkpoint storage %q: %w", address, err)
	}
	return b, nil
}

func open(address string) (*bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Fragment != "" || u.User != nil {
		return nil, errors.New("an HDFS address has the form hdfs://NAMENODE:PORT/path, with ?user=NAME where the user is another one than HADOOP_USER_NAME says")
	}
	root := path.Clean(u.Path)
	query := u.Query()
	stall := defaultStall
	for key := range query {
		switch v := query.Get(key); key {
		case "user":
		case "timeout":
			if stall, err = time.ParseDuration(v); err != nil || stall < minStall {
				return nil, fmt.Errorf("timeout: %q is not a duration of at least %s, such as 30s", v, minStall)
			}
		default:
			return nil, fmt.Errorf("unknown parameter %q; known are user and timeout", key)
		}
	}
	conf, err := hadoopconf.LoadFromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("the Hadoop configuration of HADOOP_CONF_DIR: %w", err)
	}
	options := client.ClientOptionsFromConf(conf)
	if options.Addresses, err = namenodes(conf, u); err != nil {
		return nil, err
	}
	if options.User, err = userName(query.Get("user")); err != nil {
		return nil, err
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: root}
	u.Path, u.RawPath = root, ""
	b := &bucket{
		url: u.String(), shown: shown.String(), root: root,
		pool:  &pool{options: options, dial: steady.Dialer(stall), kerberos: options.KerberosClient != nil},
		slots: make(chan struct{}, puts),
	}
	return b, nil
}

// namenodes returns the addresses that an URL's host stands for.
func namenodes(conf hadoopconf.HadoopConf, u *url.URL) ([]string, error) {
	if u.Host == "" {
		if all := conf.Namenodes(); len(all) > 0 {
			return all, nil
		}
		return nil, errors.New("no NameNode is named, and the Hadoop configuration (HADOOP_CONF_DIR) names none: write hdfs://NAMENODE:PORT/path")
	}
	if names, ok := conf["dfs.ha.namenodes."+u.Host]; ok {
		var all []string
		for name := range strings.SplitSeq(names, ",") {
			key := "dfs.namenode.rpc-address." + u.Host + "." + strings.TrimSpace(name)
			address := conf[key]
			if address == "" {
				return nil, fmt.Errorf("the Hadoop configuration (HADOOP_CONF_DIR) has nameservice %s and not %s", u.Host, key)
			}
			all = append(all, address)
		}
		return all, nil
	}
	return []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPort))}, nil
}

func userName(given string) (string, error) {
	if name := cmp.Or(given, os.Getenv("HADOOP_USER_NAME")); name != "" {
		return name, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("the user is not known (%w): set HADOOP_USER_NAME", err)
	}
	return u.Username, nil
}
