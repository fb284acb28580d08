package localcluster

import (
	"os"
	"path/filepath"
	"time"

	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
)

// certificateLife is how long nodes' certificates are valid.
const certificateLife = 30 * 24 * time.Hour

// Security is what a cluster with TLS has: an authority for nodes and one for users, and the files that they have signed.
type Security struct {
	// Dir holds ID.crt and ID.key of each node, user.crt and user.key, and the authorities' ca.crt and users-ca.crt.
	Dir   string
	Nodes *testca.Authority
	Users *testca.Authority

	user *nodetls.Keeper
}

func newSecurity(dir string) (*Security, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Security{Dir: dir}
	var err error
	if s.Nodes, err = testca.New("nodes of this cluster"); err != nil {
		return nil, err
	}
	if s.Users, err = testca.New("users of this cluster"); err != nil {
		return nil, err
	}
	if err := testca.WriteFile(s.CA(), s.Nodes.PEM()); err != nil {
		return nil, err
	}
	if err := testca.WriteFile(s.path("users-ca.crt"), s.Users.PEM()); err != nil {
		return nil, err
	}
	pair, err := s.Users.User("user")
	if err != nil {
		return nil, err
	}
	cert, key, err := pair.Write(dir, "user")
	if err != nil {
		return nil, err
	}
	s.user, err = nodetls.OpenUser(nodetls.Files{Cert: cert, Key: key, CA: s.CA()})
	return s, err
}

func (s *Security) path(name string) string { return filepath.Join(s.Dir, name) }

// CA returns the file of the nodes' authority.
func (s *Security) CA() string { return s.path("ca.crt") }

// Issue writes a new certificate and key of a node, signed by the given authority, and returns their files.
func (s *Security) Issue(by *testca.Authority, id string) (cert, key string, err error) {
	pair, err := by.Node(id, time.Now().Add(certificateLife))
	if err != nil {
		return "", "", err
	}
	return pair.Write(s.Dir, id)
}

func (s *Security) jobManager(cfg *jobmanager.Config) (err error) {
	cfg.TLSCert, cfg.TLSKey, err = s.Issue(s.Nodes, cfg.ID)
	cfg.TLSCA, cfg.UserCA = s.CA(), s.path("users-ca.crt")
	return err
}

func (s *Security) taskManager(cfg *taskmanager.Config) (err error) {
	cfg.TLSCert, cfg.TLSKey, err = s.Issue(s.Nodes, cfg.Host)
	cfg.TLSCA = s.CA()
	return err
}
