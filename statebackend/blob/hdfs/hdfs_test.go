package hdfs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/hdfstest"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/blobtest"
	"github.com/weir-stream/weir/statebackend/blob/hdfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHDFS shares one cluster, whose start takes seconds.
func TestHDFS(t *testing.T) {
	c := hdfstest.StartFor(t)
	var n atomic.Int32
	address := func(query string) string {
		return "hdfs://" + c.Address() + "/weir/" + string('a'+n.Add(1)) + query
	}
	open := func(t *testing.T, address string) blob.Bucket {
		b, err := hdfs.OpenURL(t.Context(), address)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b
	}
	t.Run("conformance", func(t *testing.T) {
		blobtest.Test(t, func(t *testing.T) blob.Bucket {
			b, err := hdfs.OpenURL(t.Context(), address(""))
			require.NoError(t, err)
			return b
		}, hdfs.OpenURL)
	})
	t.Run("names that HDFS does not take", func(t *testing.T) {
		b := open(t, address(""))
		for _, name := range []string{"a:b", "a%3Ab", "x/a:b/c"} {
			require.NoError(t, b.Put(t.Context(), name, strings.NewReader(name)))
			require.Equal(t, name, blobtest.Read(t, b, name))
		}
		require.Equal(t, []string{"a%3Ab", "a:b", "x/a:b/c"}, blobtest.List(t, b, ""))
	})
	t.Run("a cut connection is taken up", func(t *testing.T) { testCuts(t, open(t, address(""))) })
	t.Run("a writer that gives up leaves nothing", func(t *testing.T) { testGivesUp(t, open(t, address(""))) })
	t.Run("a quota that is used up is named", func(t *testing.T) {
		where := address("")
		b := open(t, where)
		require.NoError(t, b.Put(t.Context(), "first", strings.NewReader("x")))
		path := where[strings.Index(where, "/weir/"):]
		require.NoError(t, c.Admin(t.Context(), "-setQuota", "4", path))
		err := b.Put(t.Context(), "second/folder", strings.NewReader("x"))
		require.ErrorIs(t, err, blob.ErrNoSpace)
		require.ErrorContains(t, err, "hdfs dfs -count -q")
		require.ErrorContains(t, err, where+"/second/folder")
		require.Equal(t, []string{"first"}, blobtest.List(t, b, ""))
	})
	t.Run("a user without permission is refused", func(t *testing.T) {
		b := open(t, address("?user=nobody"))
		err := b.Put(t.Context(), "x", strings.NewReader("x"))
		require.ErrorIs(t, err, blob.ErrRefused)
		require.ErrorContains(t, err, "HADOOP_USER_NAME")
	})
	t.Run("a server that stands still is given up", func(t *testing.T) {
		if os.Getenv(hdfstest.EnvNameNode) != "" {
			t.Skip("somebody else's HDFS is not frozen")
		}
		b := open(t, address("?timeout=200ms"))
		require.NoError(t, b.Put(t.Context(), "x", strings.NewReader("before")))
		require.NoError(t, c.Freeze())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := b.Stat(ctx, "x")
		require.NoError(t, c.Thaw())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "before", blobtest.Read(t, b, "x"))
	})
	t.Run("a server that is back is found again", func(t *testing.T) {
		if os.Getenv(hdfstest.EnvNameNode) != "" {
			t.Skip("somebody else's HDFS is not frozen")
		}
		b := open(t, address("?timeout=200ms"))
		require.NoError(t, c.Freeze())
		done := make(chan error, 1)
		go func() { done <- b.Put(t.Context(), "x", strings.NewReader("after")) }()
		select {
		case err := <-done:
			t.Errorf("it is frozen: %v", err)
		case <-time.After(500 * time.Millisecond):
		}
		require.NoError(t, c.Thaw())
		require.NoError(t, <-done)
		require.Equal(t, "after", blobtest.Read(t, b, "x"))
	})
}

// testCuts writes and reads while connections break at every turn.
func testCuts(t *testing.T, b blob.Bucket) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	for at := range 12 {
		cut := hdfs.CutAfter(b, 1+at*370_000)
		name := "file" + string('a'+rune(at))
		require.NoError(t, b.Put(t.Context(), name, bytes.NewReader(content)), "cut %d", at)
		require.Equal(t, 1, cut(), "the connection was not cut")
		cut = hdfs.CutAfter(b, 1+at*370_000)
		if blobtest.Read(t, b, name) != string(content) {
			t.Fatalf("cut %d: something else is read than was written", at)
		}
		require.Equal(t, 1, cut(), "the connection was not cut")
	}
	hdfs.CutAfter(b, 0)
	require.Len(t, blobtest.List(t, b, ""), 12)
	require.Empty(t, hdfs.Unfinished(t.Context(), b))

	// What cannot be read again fails and leaves nothing.
	hdfs.CutAfter(b, 2_000_000)
	err := b.Put(t.Context(), "once", io.MultiReader(bytes.NewReader(content)))
	require.ErrorIs(t, err, blob.ErrUnavailable)
	hdfs.CutAfter(b, 0)
	require.Len(t, blobtest.List(t, b, ""), 12)
	require.Empty(t, hdfs.Unfinished(t.Context(), b))
}

func testGivesUp(t *testing.T, b blob.Bucket) {
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	first := bytes.NewReader(make([]byte, 3<<20))
	err := b.Put(ctx, "x", io.MultiReader(first, readerFunc(func([]byte) (int, error) {
		cancel(mine)
		return 1, nil
	})))
	require.ErrorIs(t, err, mine)
	require.Empty(t, blobtest.List(t, b, ""))
	require.Empty(t, hdfs.Unfinished(t.Context(), b))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"hdfs://host:1":          "hdfs://NAMENODE:PORT/path",
		"hdfs:///path":           "HADOOP_CONF_DIR",
		"hdfs://h/p?timeout=x":   "timeout",
		"hdfs://h/p?colour=blue": `unknown parameter "colour"`,
	} {
		t.Setenv("HADOOP_CONF_DIR", "")
		_, err := hdfs.OpenURL(t.Context(), address)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, address)
	}
	b, err := hdfs.OpenURL(t.Context(), "hdfs://host/path/?user=me")
	require.NoError(t, err)
	require.Equal(t, "hdfs://host/path?user=me", b.URL())
	require.NoError(t, b.Close())
}

func TestTheHadoopConfigurationIsUsed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HADOOP_CONF_DIR", dir)
	write := func(text string) {
		require.NoError(t, os.WriteFile(dir+"/hdfs-site.xml", []byte("<configuration>"+text+"</configuration>"), 0o644))
	}
	property := func(name, value string) string {
		return "<property><name>" + name + "</name><value>" + value + "</value></property>"
	}
	write(property("dfs.ha.namenodes.ns", "a,b") + property("dfs.namenode.rpc-address.ns.a", "h1:1") + property("dfs.namenode.rpc-address.ns.b", "h2:2"))
	b, err := hdfs.OpenURL(t.Context(), "hdfs://ns/path")
	require.NoError(t, err)
	require.Equal(t, []string{"h1:1", "h2:2"}, hdfs.NameNodes(b))
	require.NoError(t, b.Close())

	write(property("hadoop.security.authentication", "kerberos") + property("dfs.namenode.kerberos.principal", "nn/_HOST@REALM"))
	t.Setenv("KRB5_CONFIG", dir+"/krb5.conf")
	require.NoError(t, os.WriteFile(dir+"/krb5.conf", []byte("[libdefaults]\n default_realm = REALM\n"), 0o644))
	t.Setenv("KRB5CCNAME", "FILE:"+dir+"/none")
	b, err = hdfs.OpenURL(t.Context(), "hdfs://127.0.0.1:1/path")
	require.NoError(t, err)
	_, err = b.Stat(t.Context(), "x")
	require.ErrorIs(t, err, blob.ErrRefused)
	require.ErrorContains(t, err, "kinit")
	require.NoError(t, b.Close())
}
