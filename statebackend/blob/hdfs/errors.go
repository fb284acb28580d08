package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	client "github.com/colinmarc/hdfs/v2"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

// Java exceptions that NameNodes answer with.
const (
	ioException      = "java.io.IOException"
	accessControl    = "org.apache.hadoop.security.AccessControlException"
	authorization    = "org.apache.hadoop.security.authorize.AuthorizationException"
	retriable        = "org.apache.hadoop.ipc.RetriableException"
	safeMode         = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
	spaceQuota       = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"
	typeQuota        = "org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException"
	nameQuota        = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"
	notReplicatedYet = "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException"
	methodAddBlock   = "addBlock"
	hintPermission   = "the user has no permission there: give it the directory (hdfs dfs -chown), or set HADOOP_USER_NAME or user= in the address"
	hintSpace        = "a quota of the directory is used up, or its DataNodes are full: make room (hdfs dfsadmin -report, hdfs dfs -count -q)"
	hintNoDataNode   = "no DataNode takes the block: they are full, down or excluded (hdfs dfsadmin -report)"
	hintNoAnswer     = "is the NameNode up, and is the address its RPC address?"
	hintSafeMode     = "the NameNode is in safe mode (hdfs dfsadmin -safemode get)"
)

// Errors of a Put that another try does not help.
var (
	errFolder = errors.New("there is a folder of that name")
	errFinal  = errors.New("the content cannot be read a second time")
)

func notEmpty(err error) bool { return errors.Is(err, syscall.ENOTEMPTY) }

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// remote returns the NameNode's own error, if it is one.
func remote(err error) (client.Error, bool) {
	var e client.Error
	ok := errors.As(err, &e)
	return e, ok
}

// answered reports whether a server has answered, so that the connection is good.
func answered(err error) bool {
	_, ok := remote(err)
	return err == nil || ok || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, fs.ErrInvalid) || notEmpty(err)
}

// again reports whether another try may help.
func again(err error) bool {
	if errors.Is(err, errKerberos) || errors.Is(err, errFinal) {
		return false
	}
	if e, ok := remote(err); ok {
		switch e.Exception() {
		case retriable, safeMode, notReplicatedYet:
			return true
		}
		return false
	}
	return !answered(err)
}

// wrap names operation, object and storage, and maps answers to the errors of package blob, with the way out where there is one.
func (b *bucket) wrap(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	where := blob.Join(b.shown, name)
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w: %w", op, where, context.Cause(ctx), err)
	}
	hint, kind := classify(err)
	if e, ok := remote(err); ok {
		err = fmt.Errorf("%w: %s", err, firstLine(e.Message()))
	}
	return steady.Error(op, where, kind, hint, err)
}

func classify(err error) (hint string, kind error) {
	switch {
	case errors.Is(err, errKerberos):
		return "", blob.ErrRefused
	case errors.Is(err, blob.ErrExists):
		return "", nil // said already
	case errors.Is(err, fs.ErrNotExist):
		return "", blob.ErrNotExist
	case errors.Is(err, fs.ErrExist):
		return "", blob.ErrExists
	case errors.Is(err, fs.ErrPermission):
		return hintPermission, blob.ErrRefused
	}
	e, ok := remote(err)
	if !ok {
		return hintNoAnswer, blob.ErrUnavailable
	}
	switch e.Exception() {
	case accessControl, authorization:
		return hintPermission, blob.ErrRefused
	case spaceQuota, nameQuota, typeQuota:
		return hintSpace, blob.ErrNoSpace
	case retriable, safeMode:
		return hintSafeMode, blob.ErrUnavailable
	case ioException:
		if e.Method() == methodAddBlock {
			return hintNoDataNode, blob.ErrNoSpace
		}
	}
	return "", nil
}
