package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/nodetls"
)

// securityFlags say how a user's commands prove who is who.
type securityFlags struct {
	app       *app
	cmd       *cobra.Command
	files     nodetls.Files
	tokenFile string
	insecure  bool
}

func (a *app) securityFlags(cmd *cobra.Command) *securityFlags {
	f := &securityFlags{app: a, cmd: cmd}
	cmd.Flags().StringVar(&f.files.CA, "tls-ca", a.env("WEIR_TLS_CA"), "PEM file of the authority of the cluster's certificates; turns TLS on; also WEIR_TLS_CA")
	cmd.Flags().StringVar(&f.files.Cert, "tls-cert", a.env("WEIR_TLS_CERT"), "PEM file of your certificate; also WEIR_TLS_CERT")
	cmd.Flags().StringVar(&f.files.Key, "tls-key", a.env("WEIR_TLS_KEY"), "PEM file of its key; also WEIR_TLS_KEY")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", a.env("WEIR_TOKEN_FILE"), "file with your token; also WEIR_TOKEN_FILE, or the token itself in WEIR_API_TOKEN")
	cmd.Flags().BoolVar(&f.insecure, "insecure", false, "send the token to other machines without TLS too, where others can read it")
	return f
}

// apply fills in what the flags and the environment say.
func (f *securityFlags) apply(cfg *client.Config) error {
	cfg.Insecure = f.insecure
	if f.files.Enabled() {
		keeper, err := nodetls.OpenUser(f.files)
		if err != nil {
			return &usageError{fmt.Errorf("--tls-ca, --tls-cert, --tls-key: %w", err)}
		}
		cfg.TLS = keeper
	}
	var err error
	cfg.Token, err = f.token()
	return err
}

// token returns the token: of the file that the command line names, else of WEIR_API_TOKEN, else of WEIR_TOKEN_FILE.
func (f *securityFlags) token() (string, error) {
	if v := f.app.env("WEIR_API_TOKEN"); v != "" && !f.cmd.Flags().Changed("token-file") {
		if bytes.ContainsAny([]byte(v), " \t\r\n") {
			return "", &usageError{errors.New("WEIR_API_TOKEN: a token has no blanks and no line breaks")}
		}
		return v, nil
	}
	if f.tokenFile == "" {
		return "", nil
	}
	raw, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", &usageError{fmt.Errorf("--token-file: %w", err)}
	}
	// A line of the JobManagers' file will do, with the name behind the token.
	for line := range bytes.Lines(raw) {
		if words := bytes.Fields(line); len(words) > 0 && words[0][0] != '#' {
			return string(words[0]), nil
		}
	}
	return "", &usageError{fmt.Errorf("--token-file: %s holds no token", f.tokenFile)}
}

// securityHint returns what to do about an error of these flags' subject; empty for others.
func securityHint(err error) string {
	switch {
	case errors.Is(err, nodetls.ErrWantsTLS):
		return "Give the certificate of the cluster's authority with --tls-ca or WEIR_TLS_CA"
	case errors.Is(err, nodetls.ErrPlain):
		return "Leave out --tls-ca and WEIR_TLS_CA if the cluster has no TLS"
	case errors.Is(err, nodetls.ErrUntrusted):
		return "Check --tls-ca or WEIR_TLS_CA, and that the JobManagers' certificates name the host asked"
	case errors.Is(err, nodetls.ErrRefused):
		return "Check --tls-cert and --tls-key, or WEIR_TLS_CERT and WEIR_TLS_KEY"
	case errors.Is(err, grpcerr.ErrUnauthenticated):
		return "A token is given with --token-file or in WEIR_API_TOKEN, a client certificate with --tls-cert and --tls-key"
	case client.TokenInClear(err):
		return "Turn TLS on with --tls-ca or WEIR_TLS_CA, or allow it with --insecure"
	}
	return ""
}
