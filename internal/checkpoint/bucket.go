package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/pkg/cluster"
)

// bucket is a checkpoint in objects of an S3 bucket whose keys begin with a prefix. S3 shows only whole objects, and
// has no rename: the manifest is written as one object, under a condition that no other replaces it.
type bucket struct {
	client *minio.Core
	name   string
	prefix string // with a slash at its end
}

// CredentialsVariable is the environment variable with the path of a file of S3 credentials.
const CredentialsVariable = "AWS_SHARED_CREDENTIALS_FILE"

// S3Variables are the environment variables from which Open takes the server and the credentials of a bucket: those
// of the AWS CLI, except the file of certificates. Credentials of the host are never used.
var S3Variables = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", CredentialsVariable, "AWS_PROFILE", "HOME",
	"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "SSL_CERT_FILE",
	"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
}

// ErrNoCredentials means that the environment has no credentials for S3.
var ErrNoCredentials = errors.New("no S3 credentials: submit with --secret=aws-credentials (gctl secret set aws-credentials <FILE), or export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")

// ErrCredentials means that S3 refused the credentials: it does so on each host.
var ErrCredentials = errors.New("S3 refused the credentials")

const defaultEndpoint = "https://s3.amazonaws.com"

func openBucket(dir string) (Store, error) {
	name, prefix := cluster.SplitS3(dir)
	client, err := Client(nil)
	if err != nil {
		return nil, err
	}
	return &bucket{client, name, prefix + "/"}, nil
}

// Client returns a client for the S3 server and with the credentials that the environment names: see S3Variables. A nil
// transport is minio's.
func Client(transport http.RoundTripper) (*minio.Core, error) {
	variable, text := firstOf("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	if text == "" {
		text = defaultEndpoint
	}
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, fmt.Errorf("%s %q: want https://HOST[:PORT] or http://HOST[:PORT]", variable, text)
	}
	from, err := s3Credentials()
	if err != nil {
		return nil, err
	}
	_, region := firstOf("AWS_REGION", "AWS_DEFAULT_REGION")
	client, err := minio.NewCore(endpoint.Host, &minio.Options{Creds: from, Secure: endpoint.Scheme == "https", Region: region, Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("S3: %w", err)
	}
	return client, nil
}

// maxCredentials is the most bytes of a file of credentials.
const maxCredentials = 64 << 10

// s3Credentials returns the credentials in the environment, else those in the file that it names, else those in the
// file of the user. It reads three keys of the file, and no others: some name a program to run, which would run outside
// the job.
func s3Credentials() (*credentials.Credentials, error) {
	if id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"); id != "" && secret != "" {
		return credentials.NewStaticV4(id, secret, os.Getenv("AWS_SESSION_TOKEN")), nil
	}
	name := os.Getenv(CredentialsVariable)
	if name == "" {
		name = filepath.Join(os.Getenv("HOME"), ".aws", "credentials")
	}
	text, err := readCredentials(name)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoCredentials, err)
	}
	file, err := ini.Load(text)
	if err != nil {
		return nil, fmt.Errorf("%w (%s: %w)", ErrNoCredentials, name, err)
	}
	profile := file.Section(cmp.Or(os.Getenv("AWS_PROFILE"), "default"))
	id, secret := profile.Key("aws_access_key_id").String(), profile.Key("aws_secret_access_key").String()
	if id == "" || secret == "" {
		return nil, fmt.Errorf("%w (%s has no aws_access_key_id and aws_secret_access_key in [%s])", ErrNoCredentials, name, profile.Name())
	}
	return credentials.NewStaticV4(id, secret, profile.Key("aws_session_token").String()), nil
}

func readCredentials(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w", name, ErrForeign)
	case info.Size() > maxCredentials:
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxCredentials)
	}
	return io.ReadAll(io.LimitReader(f, maxCredentials))
}

// firstOf returns the first of some environment variables that is set, and its value; "" if all are unset.
func firstOf(names ...string) (name, value string) {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return name, v
		}
	}
	return "", ""
}

// Close does nothing: a bucket holds no resources.
func (b *bucket) Close() error { return nil }

func (b *bucket) list(ctx context.Context) (files []File, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	for o := range b.client.Client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true}) {
		name := strings.TrimPrefix(o.Key, b.prefix)
		switch {
		case o.Err != nil:
			return nil, b.explain(name, o.Err)
		case own(name), strings.HasSuffix(name, "/") && o.Size == 0: // some programs mark folders with such objects
			continue
		case len(name) > maxPath, !utf8.ValidString(name), !fs.ValidPath(name), name == ".":
			return nil, fmt.Errorf("%q: %w", name, ErrName)
		case len(files) == maxFiles:
			return nil, fmt.Errorf("%w: above %d", ErrTooMany, maxFiles)
		}
		files = append(files, File{Path: name, Size: o.Size, version: o.ETag + " " + o.LastModified.String()})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, ctx.Err()
}

// sync does nothing: objects are durable when they are visible.
func (b *bucket) sync(context.Context, []File) error { return nil }

func (b *bucket) size(ctx context.Context, name string) (int64, error) {
	o, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	return o.Size, b.explain(name, err)
}

func (b *bucket) open(ctx context.Context, name string, offset, size int64) (io.ReadCloser, error) {
	var part minio.GetObjectOptions
	if offset > 0 || size <= maxText { // a manifest is read as a whole: a range of an empty object is an error
		if err := part.SetRange(offset, offset+size-1); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	r, _, _, err := b.client.GetObject(ctx, b.name, b.prefix+name, part)
	if err != nil {
		return nil, b.explain(name, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(r, size), r}, nil
}

func (b *bucket) write(ctx context.Context, name string, text []byte) error {
	o := minio.PutObjectOptions{ContentType: "application/json", DisableMultipart: true}
	o.SetMatchETagExcept("*")
	_, err := b.client.Client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(text), int64(len(text)), o)
	return b.explain(name, err)
}

// credentialsErrors are the codes of S3 for credentials that a user can renew.
var credentialsErrors = []string{minio.AccessDenied, minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch, "ExpiredToken", "InvalidToken"}

// Refused reports whether an error of S3 says that the credentials were refused.
func Refused(err error) bool {
	return slices.Contains(credentialsErrors, minio.ToErrorResponse(err).Code)
}

// explain returns the error of a request for an object. A missing bucket and refused credentials say nothing about
// the checkpoint.
func (b *bucket) explain(name string, err error) error {
	if err == nil {
		return nil
	}
	code := minio.ToErrorResponse(err).Code
	switch {
	case code == minio.NoSuchKey:
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case code == minio.InvalidRange:
		return fmt.Errorf("%s: %w", name, io.ErrUnexpectedEOF)
	}
	refused := Refused(err)
	err = fmt.Errorf("s3://%s/%s%s: %w", b.name, b.prefix, name, err)
	switch {
	case refused:
		return hint.New(fmt.Errorf("%w: %w", ErrCredentials, err), "renew the credentials: gctl secret set aws-credentials <FILE")
	case code == minio.NotImplemented:
		return hint.New(err, "the S3 server does not support conditional writes (If-None-Match)")
	}
	return err
}
