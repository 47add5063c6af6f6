import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** Quotas through Java's Admin, as kafka-configs sets and shows them: argument is the bootstrap servers; prints what came of it. */
public class QuotaCalls {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        Map<String, String> names = new TreeMap<>();
        names.put(ClientQuotaEntity.USER, "alice");
        names.put(ClientQuotaEntity.CLIENT_ID, null);
        ClientQuotaEntity entity = new ClientQuotaEntity(names);
        ClientQuotaFilter all = ClientQuotaFilter.containsOnly(List.of(
            ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, "alice"),
            ClientQuotaFilterComponent.ofDefaultEntity(ClientQuotaEntity.CLIENT_ID)));
        try (Admin admin = Admin.create(properties)) {
            alter(admin, entity, 2048.0);
            Map<ClientQuotaEntity, Map<String, Double>> found = admin.describeClientQuotas(all).entities().get();
            System.out.println("set=" + found.get(entity) + " of " + found.size());
            alter(admin, entity, null);
            System.out.println("removed=" + admin.describeClientQuotas(all).entities().get().size());
            try {
                alter(admin, entity, -1.0);
            } catch (java.util.concurrent.ExecutionException error) {
                System.out.println("refused=" + error.getCause().getClass().getSimpleName());
            }
        }
    }

    private static void alter(Admin admin, ClientQuotaEntity entity, Double value) throws Exception {
        ClientQuotaAlteration.Op op = new ClientQuotaAlteration.Op("producer_byte_rate", value);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(op)))).all().get();
    }
}
