package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	connectTimeout = 30 * time.Second
	maxRedirects   = 10
	// maxDrained is how much of the text of an answer is read, so that the connection can be used again.
	maxDrained = 64 << 10
)

// errForbidden means that an address is never used: metadata services of clouds have it.
var errForbidden = errors.New("no file is copied from or to this address")

// forbidden are the addresses of metadata services that are not link-local.
var forbidden = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("100.100.100.200")}

// guarded returns a transport that connects to no metadata service of a cloud: a server of the user may redirect there.
func guarded() http.RoundTripper {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: func(_, address string, _ syscall.RawConn) error { return checkAddress(address) }}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTimeout,
		MaxResponseHeaderBytes: 256 << 10, MaxIdleConnsPerHost: workers, IdleConnTimeout: time.Minute,
		DisableCompression: true, // the length is that of the file
		ForceAttemptHTTP2:  true,
	}
}

// checkAddress refuses an address with a port that is never used.
func checkAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errForbidden, address)
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, other := range forbidden {
		if ip == other {
			return fmt.Errorf("%w: %s", errForbidden, ip)
		}
	}
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("%w: %s", errForbidden, ip)
	}
	return nil
}

// errRedirect means that a redirection is not followed.
var errRedirect = errors.New("the server redirects")

// checkRedirect refuses redirections that change the scheme to a weaker one or the method. The next server does not learn
// the query of the URL, which can be a signature.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	next.Header.Del("Referer")
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	case next.URL.Scheme != "https" && next.URL.Scheme != "http" || last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return fmt.Errorf("%w from %s to %s", errRedirect, last.URL.Scheme, next.URL.Scheme)
	case next.Method != first.Method:
		return fmt.Errorf("%w an upload with status %d, which is no upload any more", errRedirect, next.Response.StatusCode)
	}
	if ip, err := netip.ParseAddr(next.URL.Hostname()); err == nil { // a proxy would connect
		return checkAddress(netip.AddrPortFrom(ip, 80).String())
	}
	return nil
}

// get copies a file from a web server.
func (s *stager) get(ctx context.Context, root *os.Root, c Copy, moved func()) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return 0, err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, webError(err)
	}
	defer answer.Body.Close()
	moved()
	if answer.StatusCode != http.StatusOK {
		return 0, statusError(answer)
	}
	return s.write(root, c.Path, source{ReadCloser: answer.Body, size: answer.ContentLength}, moved)
}

// put copies a file to a web server.
func (s *stager) put(ctx context.Context, root *os.Root, c Copy, moved func()) (int64, error) {
	f, size, err := openFile(root, c.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	body := func() (io.ReadCloser, error) {
		return io.NopCloser(&progress{io.NewSectionReader(f, 0, size), moved}), nil
	}
	first, _ := body() // it has no error
	if size == 0 {
		first = http.NoBody
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, c.URL, first)
	if err != nil {
		return 0, err
	}
	request.ContentLength = size
	if size > 0 {
		request.GetBody = body
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, webError(err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxDrained) // the status counts
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return 0, statusError(answer)
	}
	return size, nil
}

// progress calls moved for each part that is read.
type progress struct {
	*io.SectionReader
	moved func()
}

// Read reads the next part.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.SectionReader.Read(b)
	if n > 0 {
		p.moved()
	}
	return n, err
}

// ReadAt reads a part.
func (p *progress) ReadAt(b []byte, at int64) (int, error) {
	n, err := p.SectionReader.ReadAt(b, at)
	if n > 0 {
		p.moved()
	}
	return n, err
}

// cause returns an error of a request without its URL, whose query can be a signature.
func cause(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// webError classifies the error of a request.
func webError(err error) error {
	err = cause(err)
	if errors.Is(err, errForbidden) || errors.Is(err, errRedirect) {
		return err
	}
	return &temporaryError{err: err}
}

// statusError classifies the status of an answer. Its text is not used: the server wrote it.
func statusError(answer *http.Response) error {
	code := answer.StatusCode
	err := fmt.Errorf("the server answered %d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests,
		code >= 500 && code != http.StatusNotImplemented && code != http.StatusHTTPVersionNotSupported && code != http.StatusInsufficientStorage:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // absent, or a date
		return &temporaryError{err: err, after: time.Duration(min(max(seconds, 0), 3600)) * time.Second}
	}
	return err
}
