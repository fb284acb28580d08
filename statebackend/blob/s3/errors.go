package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

// status returns the HTTP status of a server's answer, 0 without one.
func status(err error) int {
	var r *smithyhttp.ResponseError
	if errors.As(err, &r) {
		return r.HTTPStatusCode()
	}
	return 0
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
	var code string
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	hint, kind := b.classify(ctx, status(err), code)
	return steady.Error(op, where, kind, hint, err)
}

func (b *bucket) classify(ctx context.Context, status int, code string) (hint string, kind error) {
	switch code {
	case "NoSuchBucket":
		return "the bucket does not exist on " + b.server + ": create it, or correct the address", blob.ErrRefused
	case "NoSuchKey", "NotFound":
		return "", blob.ErrNotExist
	case "PreconditionFailed":
		return "", blob.ErrExists
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return "the credentials are wrong or have expired: look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"~/.aws/credentials or the machine's role, on every node", blob.ErrRefused
	case "RequestTimeTooSkewed":
		return "this machine's clock is wrong", blob.ErrRefused
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return "the bucket is in another region: correct region= in the address", blob.ErrRefused
	case "XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "XMinioAdminBucketQuotaExceeded":
		return b.server, blob.ErrNoSpace
	}
	switch {
	case status == http.StatusNotFound:
		return "", blob.ErrNotExist
	case status == http.StatusPreconditionFailed:
		return "", blob.ErrExists
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "the credentials may not do this: their policy must allow to list the bucket, and to get, put and delete its objects", blob.ErrRefused
	case status == http.StatusInsufficientStorage:
		return b.server, blob.ErrNoSpace
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusConflict:
		return b.server, blob.ErrUnavailable
	case status == 0:
		if _, err := b.credentials.Retrieve(ctx); err != nil {
			return "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, use ~/.aws/credentials, " +
				"or give the machine a role", blob.ErrRefused
		}
		return b.server, blob.ErrUnavailable
	}
	return "", nil
}
