package nodetls

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-stream/weir/internal/filestamp"
)

// Timings of the watch over the files.
const (
	watchInterval = 5 * time.Second
	expiryNotice  = 14 * 24 * time.Hour
	expiryAgain   = 24 * time.Hour
)

// Keeper holds certificates, and reads them again when their files change.
type Keeper struct {
	files  Files
	usages []x509.ExtKeyUsage // that the certificate needs
	hosts  []string           // that it should name
	logger *slog.Logger
	failed *Notices

	mu       sync.Mutex
	current  *material
	seen     filestamp.Stamp // of the files when last read
	reminded time.Time       // when the end of the certificate was last warned of
}

// OpenNode reads the files of a node, which has all of them, with or without UserCA. hosts are those by which others dial it, for which
// its certificate should be; none for a node that only dials.
func OpenNode(files Files, hosts []string, logger *slog.Logger) (*Keeper, error) {
	if err := files.ValidateNode(); err != nil {
		return nil, err
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(hosts) > 0 {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	return open(files, usages, hosts, logger)
}

// OpenUser reads the files of a user, who may do without a certificate.
func OpenUser(files Files) (*Keeper, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, errHalf
	}
	return open(files, nil, nil, slog.New(slog.DiscardHandler))
}

var (
	errNoCA = errors.New("the cluster's certificate authority is not given, without which a JobManager cannot be told from an impostor")
	errHalf = errors.New("a certificate and its key belong together, and one of them is not given")
)

func open(files Files, usages []x509.ExtKeyUsage, hosts []string, logger *slog.Logger) (*Keeper, error) {
	if files.CA == "" {
		return nil, errNoCA
	}
	k := &Keeper{files: files, usages: usages, hosts: hosts, logger: logger, failed: NewNotices(), seen: files.stamp()}
	m, err := load(files)
	if err != nil {
		return nil, err
	}
	k.current = m
	k.doubt(m)
	return k, nil
}

func (f Files) stamp() filestamp.Stamp { return filestamp.Of(f.Cert, f.Key, f.CA, f.UserCA) }

// doubt warns of a node's certificate that will not do.
func (k *Keeper) doubt(m *material) {
	if err := m.doubts(k.usages); err != nil {
		k.logger.Warn("tls certificate will be refused by nodes that trust the same authorities", "file", k.files.Cert, "reason", reason(err))
		return
	}
	for _, host := range k.hosts {
		if err := m.cert.Leaf.VerifyHostname(host); err != nil {
			k.logger.Warn("tls certificate does not name a host by which others reach this node", "file", k.files.Cert, "host", host, "reason", err)
		}
	}
}

// Watch looks after the files until ctx ends, so that trouble with them is told before the next handshake, as is a certificate that is
// about to expire.
func (k *Keeper) Watch(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		k.remind(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keeper) remind(now time.Time) {
	expires := k.Expires()
	k.mu.Lock()
	defer k.mu.Unlock()
	if expires.IsZero() || expires.Sub(now) > expiryNotice || now.Sub(k.reminded) < expiryAgain {
		return
	}
	k.reminded = now
	if expires.Before(now) {
		k.logger.Error("tls certificate has expired", "file", k.files.Cert, "expired", expires)
		return
	}
	k.logger.Warn("tls certificate expires soon", "file", k.files.Cert, "expires", expires)
}

// Expires returns when the certificate in force expires.
func (k *Keeper) Expires() time.Time { return k.get().expires() }

// get returns what is in force, after a look at the files.
func (k *Keeper) get() *material {
	now := k.files.stamp()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Equal(k.seen) {
		return k.current
	}
	// Noted before they are read: what changes while they are read is read again.
	k.seen = now
	m, err := load(k.files)
	if err != nil {
		k.logger.Warn("tls files have changed and cannot be used, the former ones stay in force", "error", err)
		return k.current
	}
	k.current, k.reminded = m, time.Time{}
	k.logger.Info("tls files read again", "certificate", k.files.Cert, "expires", m.expires())
	k.doubt(m)
	return m
}

// Notices keeps a peer that tries again and again from filling the log.
type Notices struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	noticeAgain = time.Minute
	maxNotices  = 1000
)

// NewNotices returns notices of which none has been told.
func NewNotices() *Notices { return &Notices{last: make(map[string]time.Time)} }

// Due reports whether what may be told at now, and takes note that it is. The same is due once a minute.
func (n *Notices) Due(what string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.last[what]; ok && now.Sub(at) < noticeAgain {
		return false
	}
	if len(n.last) >= maxNotices {
		clear(n.last)
	}
	n.last[what] = now
	return true
}
