package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/s3test"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/blobtest"
	"github.com/weir-stream/weir/statebackend/blob/s3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, address string) blob.Bucket {
	b, err := s3.OpenURL(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// large takes several parts.
func large() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 20<<16) } // 20 MiB

func TestS3(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	var n atomic.Int32
	blobtest.Test(t, func(t *testing.T) blob.Bucket {
		b, err := s3.OpenURL(t.Context(), server.URL(fmt.Sprintf("p%d/q", n.Add(1)), ""))
		require.NoError(t, err)
		return b
	}, s3.OpenURL)
	require.Zero(t, server.Unfinished(t))
}

func TestUploadsInParts(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	b := open(t, server.URL("p", ""))
	content := large()
	require.NoError(t, b.Put(t.Context(), "large", bytes.NewReader(content)))
	if blobtest.Read(t, b, "large") != string(content) {
		t.Fatal("something else is read than was written")
	}
	require.ErrorIs(t, b.Put(t.Context(), "large", bytes.NewReader(content)), blob.ErrExists)
	broken := errors.New("broken")
	r := io.MultiReader(bytes.NewReader(content), readerFunc(func([]byte) (int, error) { return 0, broken }))
	require.ErrorIs(t, b.Put(t.Context(), "broken", r), broken)
	ctx, cancel := context.WithCancelCause(t.Context())
	r = io.MultiReader(bytes.NewReader(content), readerFunc(func([]byte) (int, error) { cancel(broken); return 1, nil }))
	require.ErrorIs(t, b.Put(ctx, "given up", r), broken)
	require.Equal(t, []string{"large"}, blobtest.List(t, b, ""))
	require.Zero(t, server.Unfinished(t))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// once lets the n-th request that matches meet a fault.
func once(n int, match func(*http.Request) bool, f s3test.Fault) func(*http.Request) s3test.Fault {
	seen := 0
	return func(r *http.Request) s3test.Fault {
		if !match(r) {
			return s3test.Fault{}
		}
		if seen++; seen != n {
			return s3test.Fault{}
		}
		return f
	}
}

func puts(r *http.Request) bool {
	return r.Method == http.MethodPut && !strings.Contains(r.URL.Path, ".weir-")
}

func completions(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

func gets(r *http.Request) bool { return r.Method == http.MethodGet && !r.URL.Query().Has("list-type") }

func TestWhatFailsOnceIsTriedAgain(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	// Large objects have the usual time: with the race detector a part takes long.
	b, impatient := open(t, server.URL("p", "")), open(t, server.URL("p", "&timeout=1s"))
	content := large()
	for name, c := range map[string]struct {
		content []byte
		fault   func(*http.Request) s3test.Fault
	}{
		"500":                         {[]byte("x"), once(1, puts, s3test.Fault{Status: 500, Code: "InternalError"})},
		"503":                         {[]byte("x"), once(1, puts, s3test.Fault{Status: 503, Code: "SlowDown"})},
		"a cut request":               {[]byte(strings.Repeat("x", 1000)), once(1, puts, s3test.Fault{CutRequest: 500})},
		"a lost answer":               {[]byte("x"), once(1, puts, s3test.Fault{LoseAnswer: true})},
		"a server that stands still":  {[]byte("x"), once(1, puts, s3test.Fault{Stall: true})},
		"a cut part":                  {content, once(2, puts, s3test.Fault{CutRequest: 1 << 20})},
		"a refused completion":        {content, once(1, completions, s3test.Fault{Status: 503, Code: "SlowDown"})},
		"a completion with no answer": {content, once(1, completions, s3test.Fault{LoseAnswer: true})},
	} {
		t.Run(name, func(t *testing.T) {
			server.Break(c.fault)
			to := b
			if len(c.content) < len(content) {
				to = impatient
			}
			require.NoError(t, to.Put(t.Context(), name, bytes.NewReader(c.content)))
			server.Break(nil)
			if blobtest.Read(t, b, name) != string(c.content) {
				t.Fatal("something else is read than was written")
			}
			require.Zero(t, server.Unfinished(t))
		})
	}
	for name, f := range map[string]s3test.Fault{
		"a cut answer": {CutAnswer: 10 << 20}, "503": {Status: 503, Code: "SlowDown"},
	} {
		t.Run("reading: "+name, func(t *testing.T) {
			server.Break(once(1, gets, f))
			defer server.Break(nil)
			if blobtest.Read(t, b, "a cut part") != string(content) {
				t.Fatal("something else is read than was written")
			}
		})
	}
	t.Run("reading: no answer", func(t *testing.T) {
		server.Break(once(1, gets, s3test.Fault{Stall: true}))
		defer server.Break(nil)
		require.Equal(t, "x", blobtest.Read(t, impatient, "500"))
	})
}

func TestWhatKeepsFailingIsNamedAndLeavesNothing(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	b := open(t, server.URL("p", ""))
	require.NoError(t, b.Put(t.Context(), "first", strings.NewReader("x")))
	always := func(match func(*http.Request) bool, f s3test.Fault) func(*http.Request) s3test.Fault {
		return func(r *http.Request) s3test.Fault {
			if match(r) {
				return f
			}
			return s3test.Fault{}
		}
	}
	for name, c := range map[string]struct {
		fault func(*http.Request) s3test.Fault
		want  error
		text  string
	}{
		"unavailable": {always(completions, s3test.Fault{Status: 503, Code: "SlowDown"}), blob.ErrUnavailable, "SlowDown"},
		"full":        {always(puts, s3test.Fault{Status: 507, Code: "XMinioStorageFull"}), blob.ErrNoSpace, "no space left"},
		"no policy":   {always(puts, s3test.Fault{Status: 403, Code: "AccessDenied"}), blob.ErrRefused, "policy"},
		"signature":   {always(puts, s3test.Fault{Status: 403, Code: "SignatureDoesNotMatch"}), blob.ErrRefused, "AWS_SECRET_ACCESS_KEY"},
		"no bucket":   {always(puts, s3test.Fault{Status: 404, Code: "NoSuchBucket"}), blob.ErrRefused, "does not exist on http://127.0.0.1"},
		"region":      {always(puts, s3test.Fault{Status: 301, Code: "PermanentRedirect"}), blob.ErrRefused, "region="},
		"cut":         {always(puts, s3test.Fault{CutRequest: 1 << 20}), blob.ErrUnavailable, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Break(c.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := b.Put(ctx, "x", bytes.NewReader(large()))
			server.Break(nil)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "s3://state/p/x")
			require.NotErrorIs(t, err, blob.ErrNotExist)
			require.Equal(t, []string{"first"}, blobtest.List(t, b, ""))
			require.Zero(t, server.Unfinished(t))
		})
	}
	server.Break(always(func(*http.Request) bool { return true }, s3test.Fault{Stall: true}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := open(t, server.URL("p", "&timeout=200ms")).Stat(ctx, "first")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCredentials(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
	b := open(t, server.URL("p", ""))
	_, err := b.Open(t.Context(), "x")
	require.ErrorIs(t, err, blob.ErrRefused)
	require.ErrorContains(t, err, "AWS_ACCESS_KEY_ID")

	t.Setenv("AWS_ACCESS_KEY_ID", "")
	b = open(t, server.URL("p", ""))
	_, err = b.Open(t.Context(), "x")
	require.ErrorIs(t, err, blob.ErrRefused)
	require.ErrorContains(t, err, "there are no credentials")
}

func TestAServerThatOverwritesIsRefused(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	server.Overwrite()
	b := open(t, server.URL("p", ""))
	err := b.Put(t.Context(), "x", strings.NewReader("1"))
	require.ErrorIs(t, err, s3.ErrOverwrites)
	require.ErrorContains(t, err, "conditional_put=off")
	require.Empty(t, blobtest.List(t, b, ""))
	b = open(t, server.URL("p", "&conditional_put=off"))
	require.NoError(t, b.Put(t.Context(), "x", strings.NewReader("1")))
	require.ErrorIs(t, b.Put(t.Context(), "x", strings.NewReader("2")), blob.ErrExists)
	require.Equal(t, "1", blobtest.Read(t, b, "x"))

	server.Break(func(r *http.Request) s3test.Fault {
		if r.Header.Get("If-None-Match") != "" {
			return s3test.Fault{Status: http.StatusNotImplemented, Code: "NotImplemented"}
		}
		return s3test.Fault{}
	})
	b = open(t, server.URL("p", ""))
	require.ErrorIs(t, b.Put(t.Context(), "y", strings.NewReader("1")), s3.ErrOverwrites)
}

func TestAnAddressAsksNothingAndIsChecked(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	b := open(t, server.URL("p", ""))
	require.Equal(t, server.URL("p", ""), b.URL())
	require.Zero(t, server.Requests())
	for address, want := range map[string]string{
		"s3://bucket/p":                       "AWS_REGION",
		"s3://key:secret@bucket/p?region=x":   "no credentials",
		"s3:///p?region=x":                    "s3://bucket/prefix",
		"s3://bucket/a//b?region=x":           "invalid object name",
		"s3://bucket/p?region=x&colour=blue":  "colour",
		"s3://bucket/p?region=x&timeout=1":    "timeout",
		"s3://b/p?region=x&conditional_put=x": "conditional_put",
	} {
		_, err := s3.OpenURL(t.Context(), address)
		require.ErrorContains(t, err, want)
	}
}
