package deliver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/greylag/greylag/internal/report"
)

// The headers of a webhook. The signature is the HMAC-SHA256, in hexadecimal, of the timestamp, a
// dot and the body, under a shared key.
const (
	TimestampHeader = "Greylag-Timestamp" // seconds since 1970
	SignatureHeader = "Greylag-Signature"
	KeyHeader       = "Idempotency-Key" // the alert's id
)

// Webhook posts alerts as JSON.
type Webhook struct {
	URL   string
	Key   []byte
	Clock func() time.Time
}

// requestTime is the timeout of one attempt.
const requestTime = 20 * time.Second

// Name returns the address.
func (w *Webhook) Name() string { return w.URL }

// Sign returns the signature of a body sent at a time.
func Sign(key []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Send posts one alert. A response of 4xx other than 408, 425 and 429 is permanent.
func (w *Webhook) Send(ctx context.Context, a report.Alert) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.Join(errForGood, err)
	}
	at := strconv.FormatInt(w.Clock().Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(TimestampHeader, at)
	request.Header.Set(SignatureHeader, Sign(w.Key, at, body))
	request.Header.Set(KeyHeader, a.ID)
	// A redirect would send the signed body elsewhere.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // lets the connection be reused
	switch status := answer.StatusCode; {
	case status/100 == 2:
		return nil
	case status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooEarly && status != http.StatusTooManyRequests, status/100 == 3:
		return fmt.Errorf("%w: it answered %s", errForGood, answer.Status)
	default:
		return fmt.Errorf("it answered %s", answer.Status)
	}
}
