package pki

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig for the holder of the certificate called
// name. The certificates are embedded, so that the file can be copied about.
func (a *Authority) WriteKubeconfig(file, clusterName, server, name string) error {
	var contents [3][]byte
	for i, source := range []string{a.CertificateFile("ca"), a.CertificateFile(name), a.KeyFile(name)} {
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		contents[i] = content
	}
	config := api.NewConfig()
	config.Clusters[clusterName] = &api.Cluster{Server: server, CertificateAuthorityData: contents[0]}
	config.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: contents[1], ClientKeyData: contents[2]}
	config.Contexts[clusterName] = &api.Context{Cluster: clusterName, AuthInfo: name}
	config.CurrentContext = clusterName
	return clientcmd.WriteToFile(*config, file)
}
