package deliver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"os/exec"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/report"
)

// Mail sends alerts by mail: through a relay, or the host's sendmail if Relay is "".
type Mail struct {
	Cluster  string
	From     string
	To       []string
	Relay    string // HOST:PORT
	Sendmail string // program
	Clock    func() time.Time
}

// Name returns the recipients.
func (m *Mail) Name() string { return "mail:" + strings.Join(m.To, ",") }

// Check reports an invalid address.
func (m *Mail) Check() error {
	for _, a := range append([]string{m.From}, m.To...) {
		if _, err := mail.ParseAddress(a); err != nil {
			return fmt.Errorf("not a mail address: %q", a)
		}
	}
	return nil
}

// message formats an alert. Its Message-ID follows from the alert, so that a mailbox can recognize
// a repetition.
func (m *Mail) message(a report.Alert) []byte {
	var b bytes.Buffer
	sum := sha256.Sum256([]byte(a.ID))
	domain := "greylag.invalid"
	if _, after, ok := strings.Cut(m.From, "@"); ok {
		domain = strings.Trim(after, "<> ")
	}
	for _, h := range [...][2]string{
		{"From", m.From}, {"To", strings.Join(m.To, ", ")}, {"Subject", mime.QEncoding.Encode("utf-8", "["+m.Cluster+"] "+a.Text)},
		{"Date", m.Clock().Format(time.RFC1123Z)}, {"Message-ID", "<" + hex.EncodeToString(sum[:16]) + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"}, {"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], strings.NewReplacer("\r", " ", "\n", " ").Replace(h[1]))
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	if a.Body != "" {
		fmt.Fprintf(w, "%s\r\n\r\n%s\r\n", a.Text, strings.ReplaceAll(a.Body, "\n", "\r\n"))
	} else {
		fmt.Fprintf(w, "%s\r\n\r\nrule:   %s\r\nscope:  %s\r\nperiod: %s\r\nvalue:  %s\r\nlimit:  %s\r\nid:     %s\r\n", a.Text, a.Rule, a.Scope, a.Period, a.Value, a.Limit, a.ID)
	}
	_ = w.Close() // never fails in memory
	b.WriteString("\r\n")
	return b.Bytes()
}

// Send sends one mail.
func (m *Mail) Send(ctx context.Context, a report.Alert) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if m.Relay == "" {
		c := exec.CommandContext(ctx, m.Sendmail, append([]string{"-i", "-f", bare(m.From), "--"}, bareAll(m.To)...)...)
		c.Stdin = bytes.NewReader(bytes.ReplaceAll(m.message(a), []byte("\r\n"), []byte("\n")))
		out, err := c.CombinedOutput()
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s not found: name another program with --sendmail, or a relay with --smtp", errForGood, m.Sendmail)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", m.Sendmail, err, bytes.TrimSpace(out))
		}
		return nil
	}
	return m.relay(ctx, m.message(a))
}

// relay sends a mail to the relay, with TLS if the relay offers it.
func (m *Mail) relay(ctx context.Context, message []byte) error {
	host, _, err := net.SplitHostPort(m.Relay)
	if err != nil {
		return fmt.Errorf("%w: relay %q: want HOST:PORT", errForGood, m.Relay)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", m.Relay)
	if err != nil {
		return err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return err
		}
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if ok, _ := c.Extension("STARTTLS"); ok {
		if err := c.StartTLS(tlsFor(host)); err != nil {
			return err
		}
	}
	if err := c.Mail(bare(m.From)); err != nil {
		return err
	}
	for _, to := range bareAll(m.To) {
		if err := c.Rcpt(to); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(message); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the relay has accepted it
	return nil
}

// bare returns a valid address without its display name.
func bare(address string) string {
	if a, err := mail.ParseAddress(address); err == nil {
		return a.Address
	}
	return address
}

func bareAll(list []string) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = bare(a)
	}
	return out
}
