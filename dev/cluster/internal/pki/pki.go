// Package pki makes the certificates, keys and kubeconfigs of one cluster in a
// folder, and finds them again when they are there already.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	validFor = 10 * 365 * 24 * time.Hour
	// Clocks of a machine that just booted jump; a certificate must not be "not yet valid".
	validBefore = 24 * time.Hour
)

// Identity is what a certificate says of its holder. The API server takes the
// common name for the user and the organizations for the groups.
type Identity struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
}

// Authority signs the certificates of one cluster and keeps all of them in one folder.
type Authority struct {
	folder      string
	certificate *x509.Certificate
	key         crypto.Signer
}

// Open loads the authority in folder, or makes a new one there.
func Open(folder string) (*Authority, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	authority := &Authority{folder: folder}
	certificate, err := readPEM(authority.CertificateFile("ca"))
	if errors.Is(err, fs.ErrNotExist) {
		return authority, authority.create()
	}
	if err != nil {
		return nil, err
	}
	if authority.certificate, err = x509.ParseCertificate(certificate); err != nil {
		return nil, err
	}
	authority.key, err = readKey(authority.KeyFile("ca"))
	return authority, err
}

// CertificateFile is where the certificate called name lies.
func (a *Authority) CertificateFile(name string) string {
	return filepath.Join(a.folder, name+".crt")
}

// KeyFile is where the private key called name lies.
func (a *Authority) KeyFile(name string) string {
	return filepath.Join(a.folder, name+".key")
}

// EnsureKey makes a key pair that signs tokens: the private key at KeyFile(name).
func (a *Authority) EnsureKey(name string) error {
	if exists(a.KeyFile(name)) {
		return nil
	}
	_, err := writeNewKey(a.KeyFile(name))
	return err
}

// Ensure makes a certificate for servers and clients unless there is one of that name.
func (a *Authority) Ensure(name string, identity Identity) error {
	// The certificate is written last, so it vouches for the key.
	if exists(a.CertificateFile(name)) {
		return nil
	}
	key, err := writeNewKey(a.KeyFile(name))
	if err != nil {
		return err
	}
	template, err := newTemplate(identity)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	return writePEM(a.CertificateFile(name), "CERTIFICATE", signed)
}

func (a *Authority) create() error {
	key, err := writeNewKey(a.KeyFile("ca"))
	if err != nil {
		return err
	}
	template, err := newTemplate(Identity{CommonName: "draftmill-ca"})
	if err != nil {
		return err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	a.key = key
	if a.certificate, err = x509.ParseCertificate(signed); err != nil {
		return err
	}
	return writePEM(a.CertificateFile("ca"), "CERTIFICATE", signed)
}

func newTemplate(identity Identity) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: identity.CommonName, Organization: identity.Organizations},
		DNSNames:     identity.DNSNames,
		IPAddresses:  identity.IPs,
		NotBefore:    now.Add(-validBefore),
		NotAfter:     now.Add(validFor),
	}, nil
}

func writeNewKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// The API server reads the public half of a token key from a SEC 1 file, not from PKCS #8.
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(file, "EC PRIVATE KEY", encoded)
}

func readKey(file string) (crypto.Signer, error) {
	encoded, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(encoded)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

func readPEM(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", file)
	}
	return block.Bytes, nil
}

func writePEM(file, kind string, content []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	return os.WriteFile(file, text, 0o600)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
