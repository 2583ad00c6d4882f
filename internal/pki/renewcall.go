package pki

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/greylag/greylag/internal/procedure"
)

// renewPath is the API's ClusterService.Renew. It is called in the API's JSON form, so that gauthd,
// which calls nothing else, needs no generated client.
const renewPath = procedure.Prefix + "ClusterService/RenewCertificate"

// maxAnswer bounds the answer; a certificate has about 500 bytes.
const maxAnswer = 64 << 10

// RenewFrom asks the controllers (HOST:PORT) one after the other, until one answers. The controller
// identifies the caller by the certificate of id, which must still be valid.
func RenewFrom(controllers []string, t *Trust, id *Identity) Request {
	client := &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: ClientTLS(t, id), ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
	}
	return func(ctx context.Context, csr []byte) ([]byte, error) {
		all := errors.New("no controller answered")
		for _, addr := range controllers {
			cert, err := renewOnce(ctx, client, addr, csr)
			if err == nil {
				return cert, nil
			}
			all = fmt.Errorf("%w; %w", all, err)
		}
		return nil, all
	}
}

func renewOnce(ctx context.Context, client *http.Client, addr string, csr []byte) ([]byte, error) {
	body, err := json.Marshal(struct {
		CSR []byte `json:"csr"`
	}{csr})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+renewPath, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Connect-Protocol-Version", "1")
	response, err := client.Do(request)
	if err != nil {
		return nil, err // names the address already
	}
	defer response.Body.Close()
	var answer struct {
		Certificate []byte `json:"certificate"`
		Message     string `json:"message"`
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer)
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.200s", addr, response.Status, answer.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read answer: %w", addr, err)
	}
	return answer.Certificate, nil
}
