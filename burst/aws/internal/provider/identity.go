package provider

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/leased"
)

// identityDocument is what EC2 says about an instance to the instance itself. Other fields are ignored.
type identityDocument struct {
	Account  string `json:"accountId"`
	Instance string `json:"instanceId"`
	Region   string `json:"region"`
	Address  string `json:"privateIp"`
}

// identify checks the signature of an identity document, and its content against what EC2 says about the instance: the
// account, the region, the private address and the tag of the cluster.
func (p *Provider) identify(ctx context.Context, q *burst.IdentityQuestion) error {
	var proof leased.AWSIdentity
	if err := json.Unmarshal([]byte(q.Document), &proof); err != nil {
		return failure(burst.FailureNotProved, "the document is not that of gctl join --identity aws: %w", err)
	}
	if err := p.checkSignature(&proof); err != nil {
		return err
	}
	var d identityDocument
	if err := json.Unmarshal([]byte(proof.Document), &d); err != nil {
		return failure(burst.FailureNotProved, "the document of the metadata service is invalid: %w", err)
	}
	region := p.cfg.FindRegion(d.Region)
	switch {
	case d.Instance != q.Instance:
		return failure(burst.FailureNotProved, "the document is that of instance %.40q, not of %.40q", d.Instance, q.Instance)
	case region == nil:
		return failure(burst.FailureNotProved, "the document is of the region %.40q, which is not configured", d.Region)
	}
	client, err := p.client(ctx, region)
	if err != nil {
		return err
	}
	account, found, err := p.owner(ctx, client, d.Instance)
	switch {
	case err != nil:
		return err
	case found == nil:
		return failure(burst.FailureNotProved, "EC2 has no instance %s of the cluster in %s", d.Instance, d.Region)
	case account != d.Account:
		return failure(burst.FailureNotProved, "the document is of the account %.40q, the instance of %s", d.Account, account)
	case aws.ToString(found.PrivateIpAddress) != d.Address || d.Address == "":
		return failure(burst.FailureNotProved, "the document has the address %.40q, the instance %s", d.Address, aws.ToString(found.PrivateIpAddress))
	}
	return nil
}

// owner returns an instance of the cluster that has not ended, and its account; nil if it does not exist.
func (p *Provider) owner(ctx context.Context, client *ec2.Client, id string) (account string, _ *types.Instance, _ error) {
	out, err := client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("instance-id"), Values: []string{id}},
		{Name: aws.String("tag:" + tagCluster), Values: []string{p.cluster}},
	}})
	if err != nil {
		return "", nil, err
	}
	for _, r := range out.Reservations {
		for i := range r.Instances {
			x := &r.Instances[i]
			if x.State != nil && (x.State.Name == types.InstanceStateNamePending || x.State.Name == types.InstanceStateNameRunning) {
				return aws.ToString(r.OwnerId), x, nil
			}
		}
	}
	return "", nil, nil
}

// checkSignature checks that one of the configured certificates signed the document: base64 of an RSA signature
// (PKCS #1, version 1.5) of its SHA-256 hash.
func (p *Provider) checkSignature(proof *leased.AWSIdentity) error {
	keys, err := p.identityKeys()
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(proof.Signature), ""))
	if err != nil {
		return failure(burst.FailureNotProved, "the signature of the document is not base64: %w", err)
	}
	sum := sha256.Sum256([]byte(proof.Document))
	for _, key := range keys {
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil {
			return nil
		}
	}
	return failure(burst.FailureNotProved, "none of the %d certificates in %s signed the document", len(keys), p.cfg.IdentityCertificates)
}

var errNoCertificates = errors.New("it has no PEM certificate with an RSA key")

// identityKeys reads the certificates of AWS.
func (p *Provider) identityKeys() (keys []*rsa.PublicKey, err error) {
	if p.cfg.IdentityCertificates == "" {
		return nil, failure(burst.FailureTryLater, "identity_certificates is not set: burst.identity of gctld.toml needs it")
	}
	rest, err := os.ReadFile(p.cfg.IdentityCertificates)
	if err != nil {
		return nil, failure(burst.FailureTryLater, "identity_certificates: %w", err)
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, failure(burst.FailureTryLater, "identity_certificates %s: %w", p.cfg.IdentityCertificates, err)
		}
		if key, ok := certificate.PublicKey.(*rsa.PublicKey); ok {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, failure(burst.FailureTryLater, "identity_certificates %s: %w", p.cfg.IdentityCertificates, errNoCertificates)
	}
	return keys, nil
}
