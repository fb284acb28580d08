package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob/s3blob"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

const (
	// defaultStall is how long a connection may stand still.
	defaultStall = 30 * time.Second
	minStall     = 100 * time.Millisecond
	// attempts and maxBackoff are those of one request; the pause doubles, with jitter.
	attempts   = 5
	maxBackoff = 5 * time.Second
	// largePuts is the number of uploads in parts at a time.
	largePuts = 3
)

// settings are the parameters of an address that are not the SDK's.
type settings struct {
	stall       time.Duration
	conditional bool
	pathStyle   *bool
	options     s3blob.Options
}

// OpenURL opens the bucket at an address like s3://bucket/prefix?region=eu-central-1. It asks the server nothing. Credentials come from
// where the AWS tools look for them.
func OpenURL(ctx context.Context, address string) (blob.Bucket, error) {
	b, err := open(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("checkpoint storage %q: %w", address, err)
	}
	return b, nil
}

func open(ctx context.Context, address string) (*bucket, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, err
	case u.User != nil:
		return nil, errors.New("addresses are shown to people and hold no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"or use ~/.aws/credentials or the machine's role")
	case u.Host == "" || u.Fragment != "" || u.Port() != "":
		return nil, errors.New("an S3 address has the form s3://bucket/prefix?region=REGION, and &endpoint=https://HOST:PORT for a server that is not Amazon's")
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := blob.CheckName(prefix); err != nil {
			return nil, err
		}
		prefix += "/"
	}
	query := u.Query()
	set, err := parse(query)
	if err != nil {
		return nil, err
	}
	endpoint := query.Get("endpoint")
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, query)
	if err != nil {
		return nil, err
	}
	custom := endpoint != "" || cfg.BaseEndpoint != nil
	if cfg.Region == "" {
		if !custom {
			return nil, errors.New("no region is known: add region=REGION to the address or set AWS_REGION")
		}
		cfg.Region = "us-east-1" // what servers that have none expect
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: steady.Dialer(set.stall), ForceAttemptHTTP2: false,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: set.stall / 2, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
	cfg.HTTPClient = &http.Client{Transport: transport}
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff, o.RateLimiter = attempts, maxBackoff, ratelimit.None
		})
	}
	client := awss3.NewFromConfig(cfg, func(o *awss3.Options) {
		o.UsePathStyle = custom
		o.DisableLogOutputChecksumValidationSkipped = true // Weir checks what it reads by its own checksums
		if set.pathStyle != nil {
			o.UsePathStyle = *set.pathStyle
		}
	})
	set.options.RequestChecksumCalculation = cfg.RequestChecksumCalculation
	objects, err := s3blob.OpenBucket(ctx, client, u.Host, &set.options)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath = strings.TrimSuffix("/"+prefix, "/"), ""
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	b := &bucket{
		url: u.String(), shown: shown.String(), prefix: prefix, name: u.Host, client: client, objects: objects, credentials: cfg.Credentials, transport: transport,
		server: cmp.Or(endpoint, "Amazon S3 in "+cfg.Region), conditional: set.conditional,
		large: make(chan struct{}, largePuts), checking: make(chan struct{}, 1),
	}
	return b, nil
}

// parse takes our parameters out of the query and leaves the SDK's.
func parse(q url.Values) (settings, error) {
	set := settings{stall: defaultStall, conditional: true}
	take := func(key string) string {
		v := q.Get(key)
		q.Del(key)
		return v
	}
	if v := take("timeout"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d < minStall {
			return set, fmt.Errorf("timeout: %q is not a duration of at least %s, such as 30s", v, minStall)
		}
		set.stall = d
	}
	switch v := take("conditional_put"); v {
	case "", "on":
	case "off":
		set.conditional = false
	default:
		return set, fmt.Errorf("conditional_put: %q is neither on nor off", v)
	}
	if v := take("use_path_style"); v != "" {
		yes, err := strconv.ParseBool(v)
		if err != nil {
			return set, fmt.Errorf("use_path_style: %q is neither true nor false", v)
		}
		set.pathStyle = &yes
	}
	if v := take("ssetype"); v != "" {
		set.options.EncryptionType = types.ServerSideEncryption(v)
	}
	set.options.KMSEncryptionID = take("kmskeyid")
	return set, nil
}
