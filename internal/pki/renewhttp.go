package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// RenewPath is where controllers renew certificates. It is no part of the public API: its caller is
// known by its certificate alone, the body is a signing request in DER, the answer a certificate in
// DER.
const RenewPath = "/pki/v1/renew"

// maxRequest bounds both bodies; a P-256 request has about 300 bytes.
const maxRequest = 64 << 10

// RenewHandler signs again for the node or gauthd that calls with a valid certificate. allowed says
// whether that peer still belongs to the cluster; its error is shown to the caller. Controllers sign
// for themselves and are refused here.
func RenewHandler(ca *CA, allowed func(context.Context, Peer) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		}
		peer, ok := ca.trust.PeerOf(r.TLS)
		if !ok || peer.Role == RoleController {
			http.Error(w, "a node's or gauthd's certificate is needed", http.StatusUnauthorized)
			return
		}
		if err := allowed(r.Context(), peer); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		csr, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			http.Error(w, "request is too large or broke off", http.StatusBadRequest)
			return
		}
		cert, err := ca.Sign(csr, Grant{Peer: peer}, time.Now())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/pkix-cert")
		_, _ = w.Write(cert) // a caller that hung up asks again
	})
}

// RenewFrom asks the controllers (HOST:PORT) one after the other, until one answers.
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
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+RenewPath, bytes.NewReader(csr))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	request.Header.Set("Content-Type", "application/pkcs10")
	response, err := client.Do(request)
	if err != nil {
		return nil, err // names the address already
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRequest))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.200s", addr, response.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
