package s3test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Access key and secret that the server knows.
const (
	AccessKey = "weir-test"
	Secret    = "weir-test-secret"
)

// Bucket is the bucket that is there.
const Bucket = "state"

// Server is an S3 server on loopback.
type Server struct {
	http    *httptest.Server
	backend gofakes3.Backend
	inner   http.Handler
	writes  sync.Mutex // makes a condition and its write one step

	mu         sync.Mutex
	fault      func(*http.Request) Fault
	overwrites bool
	requests   int
}

// Fault is what happens to a request. The zero value is nothing.
type Fault struct {
	// Status and Code are answered instead.
	Status int
	Code   string
	// CutRequest breaks the connection when that many bytes of the request's body have come.
	CutRequest int
	// CutAnswer breaks it when that many bytes of the answer's body have gone.
	CutAnswer int
	// LoseAnswer does what is asked and breaks the connection instead of answering.
	LoseAnswer bool
	// Stall answers nothing until the client gives up.
	Stall bool
}

// Environ returns the variables with which a process has the server's credentials, and no others.
func Environ() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + Secret, "AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_REGION=",
		"AWS_DEFAULT_REGION=", "AWS_ENDPOINT_URL=", "AWS_CONFIG_FILE=/nonexistent", "AWS_SHARED_CREDENTIALS_FILE=/nonexistent",
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Setenv sets the variables of Environ for the test itself.
func Setenv(t *testing.T) {
	t.Helper()
	for _, v := range Environ() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// Start returns a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{backend: s3mem.New()}
	s.inner = gofakes3.New(s.backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if err := s.backend.CreateBucket(Bucket); err != nil {
		t.Fatalf("create the bucket: %v", err)
	}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// URL returns the address of a prefix of the bucket, with further parameters such as "&timeout=1s".
func (s *Server) URL(prefix, parameters string) string {
	return "s3://" + Bucket + "/" + prefix + "?region=eu-central-1&endpoint=" + s.http.URL + parameters
}

// Break has every request meet the fault that f returns; nil ends that.
func (s *Server) Break(f func(*http.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Overwrite makes the server ignore the condition that a name is free.
func (s *Server) Overwrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overwrites = true
}

// Requests returns how many have come.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Keys returns the keys of all objects below a prefix.
func (s *Server) Keys(t testing.TB, prefix string) (keys []string) {
	t.Helper()
	l, err := s.backend.ListBucket(Bucket, &gofakes3.Prefix{HasPrefix: true, Prefix: prefix}, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatalf("list the bucket: %v", err)
	}
	for _, o := range l.Contents {
		keys = append(keys, o.Key)
	}
	return keys
}

// Unfinished returns how many uploads in parts are neither complete nor given up.
func (s *Server) Unfinished(t testing.TB) int {
	t.Helper()
	w := httptest.NewRecorder()
	s.inner.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+Bucket+"?uploads", nil))
	if w.Code != http.StatusOK {
		return 0 // it has never seen one
	}
	return strings.Count(w.Body.String(), "<UploadId>")
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	fault, overwrites := Fault{}, s.overwrites
	if s.fault != nil {
		fault = s.fault(r)
	}
	s.mu.Unlock()
	switch {
	case fault.Stall:
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is noticed after the body only
		<-r.Context().Done()
		return
	case fault.Status != 0:
		refuse(w, fault.Status, fault.Code)
		return
	case !strings.Contains(r.Header.Get("Authorization"), "Credential="+AccessKey+"/"):
		refuse(w, http.StatusForbidden, "InvalidAccessKeyId")
		return
	}
	if fault.CutRequest > 0 {
		_, _ = io.CopyN(io.Discard, r.Body, int64(fault.CutRequest))
		panic(http.ErrAbortHandler)
	}
	out := &answer{ResponseWriter: w, left: -1}
	if fault.CutAnswer > 0 {
		out.left = fault.CutAnswer
	}
	if fault.LoseAnswer {
		out.ResponseWriter = httptest.NewRecorder()
	}
	s.serve(out, r, overwrites)
	if fault.LoseAnswer || out.cut {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, overwrites bool) {
	if r.Method != http.MethodPut && r.Method != http.MethodPost {
		s.inner.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.writes.Lock()
	defer s.writes.Unlock()
	if overwrites {
		r.Header.Del("If-None-Match")
	}
	if r.Header.Get("If-None-Match") == "*" && s.exists(r) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	s.inner.ServeHTTP(w, r)
}

func (s *Server) exists(r *http.Request) bool {
	o, err := s.backend.HeadObject(Bucket, strings.TrimPrefix(r.URL.Path, "/"+Bucket+"/"))
	if err == nil {
		err = o.Contents.Close()
	}
	return err == nil
}

func refuse(w http.ResponseWriter, status int, code string) {
	body := fmt.Sprintf("<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

var errCut = errors.New("cut")

// answer may be cut after some bytes.
type answer struct {
	http.ResponseWriter
	left int // -1 for no limit
	cut  bool
}

func (a *answer) Write(p []byte) (int, error) {
	if a.left < 0 || len(p) <= a.left {
		if a.left > 0 {
			a.left -= len(p)
		}
		return a.ResponseWriter.Write(p)
	}
	n, err := a.ResponseWriter.Write(p[:a.left])
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	a.cut = true
	return n, errors.Join(err, errCut)
}
